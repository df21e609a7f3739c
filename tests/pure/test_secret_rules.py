"""The rules for secrets are data with examples; each example must be matched by its own rule only."""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Iterable
from typing import TypeVar

import msgspec
import pytest

from sprite.privacy.redaction import redact
from sprite.privacy.secret_formats import (
    Block,
    Format,
    Half,
    NameFile,
    NamePart,
    Place,
    PlaceFile,
    Rule,
    Shape,
    ShapeFile,
    ValueFile,
    format_of,
    library_formats,
    own_formats,
    read,
)
from sprite.privacy.secret_names import Names, Style, Values
from sprite.privacy.secret_places import Places
from tests.fake_secrets import ALNUM, BASE64, HEX, LOWER, UPPER, WORD
from tests.forking import ROOT
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
    """Replace each note in the example by random characters, always the same ones."""
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
    """Return the rules except one."""
    fewer = {name: tuple(other for other in some if other is not rule) for name, some in lists(rules).items()}
    return msgspec.structs.replace(rules, **fewer)


ALL = [*SHAPES, *(rule for file in (PLACES, NAMES, VALUES) for some in lists(file).values() for rule in some)]


def named(rule: Rule) -> str:
    return f"{getattr(rule, 'kind', 'no secret')}: {rule.about}"


R = TypeVar("R", bound=Rule)


def matches(rules: Iterable[R]) -> list[tuple[R, str]]:
    return [(rule, expanded(text)) for rule in rules for text in rule.matches]


def ignores(rules: Iterable[Rule]) -> list[str]:
    return [expanded(text) for rule in rules for text in rule.ignores]


def kinds(spans: Iterable[Span]) -> set[str]:
    return {kind for _, _, kind in spans}


def test_rules_describe_target_and_have_both_examples() -> None:
    """Each has examples that match and examples that do not."""
    assert [named(rule) for rule in ALL if not (rule.about and rule.matches and rule.ignores)] == []


def test_malformed_rule_is_refused() -> None:
    whole = {"about": "x", "pattern": "y", "matches": ["y"], "ignores": ["z"]}
    assert msgspec.convert(whole, Rule).regex == "y"
    for wrong in ({**whole, "patern": "y"}, {key: whole[key] for key in ("about", "pattern", "matches")}):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert(wrong, Rule)


def test_rules_contain_no_scanner_detectable_secret() -> None:
    text = "\n".join(path.read_text("utf-8") for path in sorted(FOLDER.iterdir()))
    assert [(rule.kind, text[start:end]) for rule in formats() for start, end, _ in rule.spans(text)] == []


# --- shapes and places: only its own rule finds a secret among rules of its kind ---


@functools.cache
def formats() -> tuple[Format, ...]:
    return (*own_formats(), *library_formats())


Finder = Shape | Place | Block | Half
FINDERS: tuple[Finder, ...] = (*SHAPES, *PLACES.place, *PLACES.block, *PLACES.half)
NAMED: tuple[NamePart, ...] = (*NAMES.word, *NAMES.spaced_name, *NAMES.link)


def test_secret_is_redacted_under_rule_name() -> None:
    redacted = [(named(rule), rule.kind, redact(text)) for rule, text in matches((*FINDERS, *NAMED))]
    assert [each for each in redacted if f"[redacted:{each[1]}]" not in each[2]] == []


def test_counterexample_is_unchanged() -> None:
    assert [text for text in ignores((*FINDERS, *NAMED)) if redact(text) != text] == []


def test_shape_example_matches_no_other_shape() -> None:
    of_shapes = [(shape, format_of(shape)) for shape in SHAPES]
    for rule, text in matches(SHAPES):
        finders = [shape for shape, found in of_shapes if found.kind == rule.kind and found.spans(text)]
        assert finders == [rule], (named(rule), text)
        assert not any(found.spans(text) for found in library_formats() if found.kind == rule.kind), named(rule)


def test_library_flag_holds_until_its_group_ends() -> None:
    """Go's `(?i)` also holds behind a group inside its own."""
    [rule] = [found for found in library_formats() if found.kind == "authress-service-client-access-key"]
    key = expanded("sc_{alnum:12}.{alnum:5}.acc-{upper:16}.{alnum:40}")
    assert rule.spans(key) == [(0, len(key), rule.kind)]


def test_token_inside_word_is_not_matched() -> None:
    for rule, text in matches([shape for shape in SHAPES if shape.token]):
        ((start, _, _),) = format_of(rule).spans(text)
        found = format_of(rule).spans(f"{text[:start]}x{text[start:]}")
        assert start + 1 not in {begin for begin, _, _ in found}, named(rule)


def test_place_example_needs_its_rule() -> None:
    whole = Places(PLACES)
    for rule in FINDERS[len(SHAPES) :]:
        fewer = Places(without(PLACES, rule))
        for text in map(expanded, rule.matches):
            assert rule.kind in kinds(whole.spans(text, text.lower(), text.lower())), named(rule)
            assert rule.kind not in kinds(fewer.spans(text, text.lower(), text.lower())), named(rule)


def names_of(rules: NameFile) -> Names:
    return Names(rules, Values(VALUES, rules))


def by_name(names: Names, text: str) -> set[str]:
    return kinds(names.spans(text, text.lower(), names.words(text.lower())))


def test_example_needs_keyword_or_link() -> None:
    whole = names_of(NAMES)
    for rule in NAMED:
        fewer = names_of(without(NAMES, rule))
        for text in map(expanded, rule.matches):
            assert rule.kind in by_name(whole, text), named(rule)
            assert rule.kind not in by_name(fewer, text), named(rule)


# --- exemptions: only its own rule exempts an example ---


def as_a_url(word: str, rules: PlaceFile) -> list[Span]:
    text = f"postgres://app:{word}@db:5432/app"
    return list(Places(rules).spans(text, text, text))


def test_variable_is_exempted_by_own_rule_only() -> None:
    for rule, word in matches(PLACES.variable):
        assert not as_a_url(word, PLACES), named(rule)
        assert as_a_url(word, without(PLACES, rule)), named(rule)


def test_non_variable_is_not_exempted() -> None:
    assert [word for word in ignores(PLACES.variable) if not as_a_url(word, PLACES)] == []


STYLES: tuple[Style, ...] = ("literal", "code", "prose")
#: A password's, a token's, and the name of a variable.
PLAIN_NAMES = ("db_password", "access_token", "DB_PASSWORD")
#: A password and a token.
PLAIN_VALUES = (expanded("hunter{digit:2}"), expanded("{alnum:32}"))


def verdicts(values: Values, pairs: Iterable[tuple[str, str]]) -> list[bool]:
    """Return whether each value is a secret under its name, in every notation."""
    return [
        values.kind(name, value, style) is not None
        and (style != "prose" or values.is_striking(value, " is ", quoted=False))
        for name, value in pairs
        for style in STYLES
    ]


@functools.cache
def all_values() -> Values:
    return Values(VALUES, NAMES)


def is_saved(fewer: Values, pairs: list[tuple[str, str]]) -> bool:
    """Return whether removing a rule makes one of the values a secret."""
    now, then = verdicts(all_values(), pairs), verdicts(fewer, pairs)
    return any(after and not before for before, after in zip(now, then, strict=True))


def values_without(rule: Rule) -> Values:
    return Values(without(VALUES, rule), without(NAMES, rule))


EXCEPTIONS = [rule for some in lists(VALUES).values() for rule in some]


def test_harmless_name_is_exempted_by_own_rule_only() -> None:
    for rule in NAMES.harmless_name:
        fewer = values_without(rule)
        for name in map(expanded, rule.matches):
            pairs = [(name, value) for value in PLAIN_VALUES]
            assert not any(verdicts(all_values(), pairs)), named(rule)
            assert is_saved(fewer, pairs), named(rule)


def test_name_outside_rule_has_secrets() -> None:
    for name in ignores(NAMES.harmless_name):
        assert any(verdicts(all_values(), [(name, value) for value in PLAIN_VALUES])), name


def test_value_is_exempted_by_own_rule_only() -> None:
    for rule in EXCEPTIONS:
        fewer = values_without(rule)
        for value in map(expanded, rule.matches):
            assert is_saved(fewer, [(name, value) for name in PLAIN_NAMES]), (named(rule), value)


def test_near_miss_value_is_secret() -> None:
    for value in ignores(EXCEPTIONS):
        assert any(verdicts(all_values(), [(name, value) for name in PLAIN_NAMES])), value
