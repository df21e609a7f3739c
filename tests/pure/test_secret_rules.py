"""The rules about secrets are data with examples: each is read from there, and has to hold of its rule and no other."""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import msgspec
import pytest

from sprite.privacy.redaction import redact
from sprite.privacy.rule_files import (
    Block,
    Half,
    NameFile,
    NamePart,
    Place,
    PlaceFile,
    Rule,
    Shape,
    ShapeFile,
    ValueFile,
    read,
)
from sprite.privacy.secret_formats import Format, format_of, library_formats, own_formats
from sprite.privacy.secret_names import Names
from sprite.privacy.secret_places import Places
from sprite.privacy.secret_values import Style, Values
from tests.fake_secrets import ALNUM, BASE64, HEX, LOWER, UPPER, WORD
from tests.harness import ROOT
from tests.heldout_secrets import BASE58

Span = tuple[int, int, str]
F = TypeVar("F", bound=msgspec.Struct)
FOLDER = ROOT / "sprite" / "privacy" / "rules"
SHAPE_FILES = ("models.toml", "clouds.toml", "packages.toml", "services.toml")
SHAPES = tuple(shape for name in SHAPE_FILES for shape in read(name, ShapeFile).shape)
PLACES = read("places.toml", PlaceFile)
NAMES = read("names.toml", NameFile)
VALUES = read("values.toml", ValueFile)

ALPHABETS = {
    "alnum": ALNUM, "word": WORD, "base64": BASE64, "upper": UPPER, "lower": LOWER, "hex": HEX, "digit": "0123456789",
    "letter": "abcdefghijklmnopqrstuvwxyz", "dash": "-",
    "base58": BASE58,
}  # fmt: skip
_NOTE = re.compile(rf"\{{({'|'.join(ALPHABETS)}):(\d+)\}}")


def expanded(example: str) -> str:
    """The example with random characters, always the same ones, in the place of each note."""
    rng = random.Random(example)  # noqa: S311 - made-up data, the same each time

    def characters(note: re.Match[str]) -> str:
        alphabet, length = ALPHABETS[note[1]], int(note[2])
        while True:
            made = "".join(rng.choices(alphabet, k=length))
            if length < 8 or (_has_digit(made) == _has_digit(alphabet) and made.isdigit() == alphabet.isdigit()):
                return made

    return _NOTE.sub(characters, example)


def _has_digit(text: str) -> bool:
    return re.search(r"\d", text) is not None


def lists(rules: msgspec.Struct) -> dict[str, tuple[Rule, ...]]:
    return {name: getattr(rules, name) for name in rules.__struct_fields__}


def without(rules: F, rule: Rule) -> F:
    """The same rules but for one."""
    fewer = {name: tuple(other for other in some if other is not rule) for name, some in lists(rules).items()}
    return msgspec.structs.replace(rules, **fewer)


ALL = [*SHAPES, *(rule for file in (PLACES, NAMES, VALUES) for some in lists(file).values() for rule in some)]


def named(rule: Rule) -> str:
    return f"{getattr(rule, 'kind', 'no secret')}: {rule.about}"


def matches(rules: Iterable[Rule]) -> list[object]:
    return [
        pytest.param(rule, expanded(text), id=f"{named(rule)}: {text}"[:120]) for rule in rules for text in rule.matches
    ]


def ignores(rules: Iterable[Rule]) -> list[object]:
    return [pytest.param(expanded(text), id=f"{named(rule)}: {text}"[:120]) for rule in rules for text in rule.ignores]


def kinds(spans: Iterable[Span]) -> set[str]:
    return {kind for _, _, kind in spans}


@pytest.mark.parametrize("rule", ALL, ids=named)
def test_every_rule_says_what_it_recognises_and_has_examples_of_both_kinds(rule: Rule) -> None:
    assert rule.about
    assert rule.matches
    assert rule.ignores


def test_a_rule_with_a_misspelt_field_or_without_examples_is_refused() -> None:
    whole = {"about": "x", "pattern": "y", "matches": ["y"], "ignores": ["z"]}
    assert msgspec.convert(whole, Rule).regex == "y"
    for wrong in ({**whole, "patern": "y"}, {key: whole[key] for key in ("about", "pattern", "matches")}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(wrong, Rule)


@pytest.mark.parametrize("path", sorted(FOLDER.iterdir()), ids=lambda path: path.name)
def test_the_rules_contain_nothing_that_a_scanner_takes_for_a_secret(path: Path) -> None:
    text = path.read_text("utf-8")
    assert [(rule.kind, text[start:end]) for rule in formats() for start, end, _ in rule.spans(text)] == []


# --- shapes and places: where the secret is, a rule and no other of its kind finds it ---


@functools.cache
def formats() -> tuple[Format, ...]:
    return (*own_formats(), *library_formats())


FINDERS = (*SHAPES, *PLACES.place, *PLACES.block, *PLACES.half)
NAMED = (*NAMES.word, *NAMES.spaced_name, *NAMES.link)


@pytest.mark.parametrize(("rule", "text"), matches((*FINDERS, *NAMED)))
def test_a_secret_is_redacted_as_what_the_rule_says(rule: Shape | Place | Block | NamePart, text: str) -> None:
    assert f"[redacted:{rule.kind}]" in redact(text)


@pytest.mark.parametrize("text", ignores((*FINDERS, *NAMED)))
def test_what_is_none_is_left_as_it_is(text: str) -> None:
    assert redact(text) == text


@pytest.mark.parametrize(("rule", "text"), matches(SHAPES))
def test_no_other_shape_of_its_kind_finds_the_example_of_a_shape(rule: Shape, text: str) -> None:
    others = [format_of(other) for other in SHAPES if other is not rule] + list(library_formats())
    assert format_of(rule).spans(text)
    assert [other.spans(text) for other in others if other.kind == rule.kind and other.spans(text)] == []


@pytest.mark.parametrize("rule", [shape for shape in SHAPES if shape.token], ids=named)
def test_a_token_is_not_found_in_the_middle_of_a_word(rule: Shape) -> None:
    for text in map(expanded, rule.matches):
        ((start, _, _),) = format_of(rule).spans(text)
        found = format_of(rule).spans(f"{text[:start]}x{text[start:]}")
        assert start + 1 not in {begin for begin, _, _ in found}


@pytest.mark.parametrize(("rule", "text"), matches(FINDERS[len(SHAPES) :]))
def test_without_a_rule_about_a_place_its_example_is_not_found_there(rule: Place | Block | Half, text: str) -> None:
    def found(rules: PlaceFile) -> set[str]:
        return kinds(Places(rules).spans(text, text.lower(), text.lower()))

    assert rule.kind in found(PLACES)
    assert rule.kind not in found(without(PLACES, rule))


def by_name(rules: NameFile, text: str) -> set[str]:
    names, lower = Names(rules, Values(VALUES, rules)), text.lower()
    return kinds(names.spans(text, lower, names.words(lower)))


@pytest.mark.parametrize(("rule", "text"), matches(NAMED))
def test_without_a_word_or_a_link_its_example_is_not_found(rule: NamePart, text: str) -> None:
    fewer = without(NAMES, rule)
    assert rule.kind in by_name(NAMES, text)
    assert rule.kind not in by_name(fewer, text)


# --- what is no secret: a rule and no other saves its example ---


def as_a_url(word: str, rules: PlaceFile) -> list[Span]:
    text = f"postgres://app:{word}@db:5432/app"
    return list(Places(rules).spans(text, text, text))


@pytest.mark.parametrize(("rule", "word"), matches(PLACES.variable))
def test_a_variable_in_the_place_of_a_secret_is_saved_by_its_rule_alone(rule: Rule, word: str) -> None:
    assert not as_a_url(word, PLACES)
    assert as_a_url(word, without(PLACES, rule))


@pytest.mark.parametrize("word", ignores(PLACES.variable))
def test_what_is_no_variable_is_not_saved(word: str) -> None:
    assert as_a_url(word, PLACES)


STYLES: tuple[Style, ...] = ("literal", "code", "prose")
#: A password's, a token's, and the name of a variable.
PLAIN_NAMES = ("db_password", "access_token", "DB_PASSWORD")
#: A password and a token.
PLAIN_VALUES = (expanded("hunter{digit:2}"), expanded("{alnum:32}"))


def verdicts(values: Values, pairs: Iterable[tuple[str, str]]) -> list[bool]:
    """Whether each value is a secret under its name, in every way in which it can be written."""
    return [
        values.kind(name, value, style) is not None
        and (style != "prose" or values.is_striking(value, " is ", quoted=False))
        for name, value in pairs
        for style in STYLES
    ]


@functools.cache
def all_values() -> Values:
    return Values(VALUES, NAMES)


def is_saved(rule: Rule, pairs: list[tuple[str, str]]) -> bool:
    """Whether, without the rule, one of the values would be taken for a secret that now is none."""
    fewer = Values(without(VALUES, rule), without(NAMES, rule))
    now, then = verdicts(all_values(), pairs), verdicts(fewer, pairs)
    return any(after and not before for before, after in zip(now, then, strict=True))


EXCEPTIONS = [rule for some in lists(VALUES).values() for rule in some]


@pytest.mark.parametrize(("rule", "name"), matches(NAMES.harmless_name))
def test_a_harmless_name_is_known_by_its_rule_alone(rule: Rule, name: str) -> None:
    pairs = [(name, value) for value in PLAIN_VALUES]
    assert not any(verdicts(all_values(), pairs))
    assert is_saved(rule, pairs)


@pytest.mark.parametrize("name", ignores(NAMES.harmless_name))
def test_a_name_that_is_not_harmless_has_secrets(name: str) -> None:
    assert any(verdicts(all_values(), [(name, value) for value in PLAIN_VALUES]))


@pytest.mark.parametrize(("rule", "value"), matches(EXCEPTIONS))
def test_a_value_is_saved_by_its_rule_alone(rule: Rule, value: str) -> None:
    assert is_saved(rule, [(name, value) for name in PLAIN_NAMES])


@pytest.mark.parametrize("value", ignores(EXCEPTIONS))
def test_a_value_that_only_comes_close_is_a_secret(value: str) -> None:
    assert any(verdicts(all_values(), [(name, value) for name in PLAIN_NAMES]))
