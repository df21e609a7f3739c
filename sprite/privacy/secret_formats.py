"""Secrets that are recognised by their own shape, whatever stands around them: prefixes, lengths, alphabets.

The model vendors' keys and the formats that must be found in any context are our own rules. The long tail (some 200
services) are the rules of gitleaks, which the `secretscreen` package ships as data. Only its file is read: importing
the package would cost 90 ms.
"""

from __future__ import annotations

import functools
import importlib.util
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

Span = tuple[int, int, str]

KIND = "card-number"
#: In one piece, or in groups as cards print them: 4-4-4-4, Amex 4-6-5, Diners 4-6-4.
_GROUPED = re.compile(
    # The first digit before the look behind it: so the search passes over everything else at once.
    # An account number (IBAN) is in groups as well, of which more stand before.
    r"[2-6](?<![\w.,+%/#-].)(?<!\d[ -].)(?:\d{14,15}|\d{3}([ -])\d{4}\1\d{4}\1\d{4}|\d{3}([ -])\d{6}\2\d{4,5})"
    r"(?![\w%/-]|[.,]\d)"
)
_CUE = re.compile(
    r"(?i)card|visa|amex|american express|maestro|diners|discover|\bpan\b|\bcc\b"
    r"|credit|debit|cvv|cvc|karte|carte|tarjeta"
)
#: How near to a number.
_NEAR = 60
#: Visa, Mastercard (two ranges), American Express, Discover, JCB, Diners: prefix, and how many digits follow it.
_ISSUERS = re.compile(
    r"4\d{15}|5[1-5]\d{14}|2(?:22[1-9]|2[3-9]\d|[3-6]\d\d|7[01]\d|720)\d{12}|3[47]\d{13}"
    r"|6(?:011|5\d\d|4[4-9]\d)\d{12}|35(?:2[89]|[3-8]\d)\d{12}|3(?:0[0-5]|[689]\d)\d{11}"
)


def card_numbers(text: str) -> Iterator[Span]:
    """Yields the numbers of payment cards."""
    for match in _GROUPED.finditer(text):
        start, end = match.span()
        digits = re.sub(r"[ -]", "", match[0])
        if not _ISSUERS.fullmatch(digits) or not _has_check_digit(digits):
            continue
        # One in ten numbers has the right check digit: without a card's groups, something has to speak of cards.
        if len(digits) < end - start or _CUE.search(text, max(0, start - _NEAR), end + _NEAR):
            yield (start, end, KIND)


def _has_check_digit(digits: str) -> bool:
    """Returns whether Luhn's sum comes out: every second digit from the right counts twice, tens added to ones."""
    doubled = (int(digit) * (1 + at % 2) for at, digit in enumerate(reversed(digits)))
    return sum(sum(divmod(value, 10)) for value in doubled) % 10 == 0


SEED_KIND = "seed-phrase"
_LENGTHS = frozenset({12, 15, 18, 21, 24})
_SHORTEST, _LONGEST = 12, 25
#: Cues for a phrase within _NEAR characters before it.
_SEED_CUE = re.compile(r"seed|mnemonic|(?:recovery|backup|secret|wallet)[ _-](?:phrase|words)|fromphrase|wallet")
_SEED_NEAR = 120
_MARKERS = ("seed", "mnemonic", "wallet", "phrase", "ckup words", "ret words")
_WORD = re.compile(r"[A-Za-z]+")
_IS_CANDIDATE = re.compile(r"[a-z]{3,8}")
#: Between two words: a space, commas and quotes of a list, the numbers of a numbered one.
_GAP = re.compile(r"""(?:[ \t]|["'`]?,?\s{1,3}["'`]?|["'`],["'`])?(?:\s{0,4}\d{1,2}[.):]?\s{1,3})?""")
#: Function words, none of them in the list.
_GLUE = frozenset(
    "the and for are was were with from his her has had been not but its our who which their than does did could would "
    "should into onto also isn don it's let's goes went them these those".split()
) - {"also", "into"}
#: A phrase alone on its line. The pattern starts with the line feed, so that the search skips other text fast.
_ALONE = r"""[ \t>"'`]{0,8}((?:[a-z]{3,8} ){11,23}[a-z]{3,8})[ \t\r"'`.]{0,4}(?=\n|\Z)"""
_LINE = re.compile(_ALONE)
_NEXT_LINE = re.compile(rf"\n{_ALONE}")
#: Endings that are rare in the list; more than a few mean a sentence or another list.
_INFLECTED = re.compile(r"(?:[^aeiou]s|ed|ing)\Z")
_MOST_INFLECTED = 2


def seed_phrases(text: str, lower: str) -> Iterator[Span]:
    """Yield the spans of phrases. `lower` is the text in lower case."""
    yield from _lines(text)
    if not any(marker in lower for marker in _MARKERS):
        return
    cues = [match.end() for match in _SEED_CUE.finditer(lower)]
    for run in _runs(text) if cues else ():
        words = [word[0] for word in run]
        start, end = run[0].start(), run[-1].end()
        if _could_be_phrase(words, exact=False) and any(start - _SEED_NEAR <= cue <= start for cue in cues):
            yield (start, end, SEED_KIND)


def _lines(text: str) -> Iterator[Span]:
    """Yield the lines that are exactly a phrase."""
    first = _LINE.match(text)
    for line in (first, *_NEXT_LINE.finditer(text)) if first else _NEXT_LINE.finditer(text):
        if _could_be_phrase(line[1].split(" "), exact=True):
            yield (*line.span(1), SEED_KIND)


def _runs(text: str) -> Iterator[list[re.Match[str]]]:
    """Yield every run of words that could be in the list, separated only as phrases are."""
    run: list[re.Match[str]] = []
    for word in _WORD.finditer(text):
        fits = _IS_CANDIDATE.fullmatch(word[0]) is not None and word[0] not in _GLUE
        if run and not (fits and _GAP.fullmatch(text, run[-1].end(), word.start())):
            yield run
            run = []
        if fits:
            run.append(word)
    if run:
        yield run


def _could_be_phrase(words: list[str], *, exact: bool) -> bool:
    """Return whether the words may be a phrase; `exact` allows only its regular lengths, because there is no cue."""
    if len(words) not in _LENGTHS and (exact or not _SHORTEST <= len(words) <= _LONGEST):
        return False
    inflected = sum(_INFLECTED.search(word) is not None for word in words)
    return not _GLUE.intersection(words) and inflected <= _MOST_INFLECTED and len(set(words)) > len(words) // 2


_FOLDER = Path(__file__).with_name("rules")
_F = TypeVar("_F", bound=msgspec.Struct)


class Rule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A pattern for secrets with examples, which the test of the rules checks."""

    about: str
    #: A regular expression; a list is concatenated.
    pattern: str | list[str] = ""
    #: Alternatives for `{words}` in the patterns.
    words: tuple[str, ...] = ()
    matches: tuple[str, ...]
    ignores: tuple[str, ...]

    @property
    def regex(self) -> str:
        """The whole regular expression."""
        return self.filled(self.pattern if isinstance(self.pattern, str) else "".join(self.pattern))

    def filled(self, pattern: str) -> str:
        """Return a pattern of this rule with its words filled in."""
        return pattern.replace("{words}", "|".join(self.words))


class Shape(Rule, frozen=True, kw_only=True):
    """A secret with a distinctive form."""

    kind: str
    markers: tuple[str, ...]
    token: str = ""
    entropy: float = 0.0


class ShapeFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """models.toml, clouds.toml, packages.toml, services.toml."""

    shape: tuple[Shape, ...]


class NameParts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Prefixes and parts of rule names."""

    begins: tuple[str, ...]
    contains: tuple[str, ...]


class LibraryFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """library.toml."""

    left_out: dict[str, str]
    left_out_by_name: NameParts


class Place(Rule, frozen=True, kw_only=True):
    """A secret recognised by its surroundings."""

    kind: str
    markers: tuple[str, ...]
    also: str = ""
    trim: str = ""
    contains: tuple[str, ...] = ()
    shortest: int = 0
    entropy: float = 0.0
    basic: bool = False
    variables: bool = True
    numbers: bool = True
    lower: bool = False
    long: bool = False
    before: str = ""


class Half(Place, frozen=True, kw_only=True):
    """A secret that is near its other half."""

    beside: str


class Block(Rule, frozen=True, kw_only=True):
    """A secret of many lines."""

    kind: str
    markers: tuple[str, ...]
    begin: str
    end: str
    tail: bool = False


class PlaceFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """places.toml."""

    place: tuple[Place, ...]
    block: tuple[Block, ...]
    half: tuple[Half, ...]
    variable: tuple[Rule, ...]


class NamePart(Rule, frozen=True, kw_only=True):
    """A part of an assignment; its examples are redacted as `kind`."""

    kind: str


class Word(NamePart, frozen=True, kw_only=True):
    """A word that marks a name as secret."""

    search: str
    markers: tuple[str, ...] = ()
    alone: bool = False
    password: str = ""
    token: str = ""
    within: str = ""


class NameFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """names.toml."""

    word: tuple[Word, ...]
    spaced_name: tuple[NamePart, ...]
    link: tuple[NamePart, ...]
    harmless_name: tuple[Rule, ...]


class ValueFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """values.toml."""

    reference: tuple[Rule, ...]
    placeholder: tuple[Rule, ...]
    term: tuple[Rule, ...]
    path: tuple[Rule, ...]
    unit: tuple[Rule, ...]
    expression: tuple[Rule, ...]
    standard: tuple[Rule, ...]
    remark: tuple[Rule, ...]


class WishFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """wishes.toml; the first three fields replace placeholders in the patterns."""

    start: str
    end: str
    memory: str
    wish: tuple[Rule, ...]


def read(name: str, form: type[_F]) -> _F:
    """Return the rules of one file. Raises ValidationError if a rule lacks a field or has an unknown one."""
    import tomllib  # 5 ms that the listener need not wait for

    return msgspec.convert(tomllib.loads((_FOLDER / name).read_text("utf-8")), form)


def one_of(patterns: Iterable[str]) -> str:
    """Return one regular expression for several, in order; for none, one that matches nothing."""
    return "|".join(dict.fromkeys(pattern for pattern in patterns if pattern)) or r"(?!)"


_OWN_FILES = ("models.toml", "clouds.toml", "packages.toml", "services.toml")
#: What must not stand before a token. A slash may: tokens stand in paths of URLs.
_START = r"(?<![A-Za-z0-9])"
#: What gitleaks demands after a secret. In prose and in JSON a comma, a bracket or a full stop ends one just as well;
#: here it ends where its characters end.
_GITLEAKS_END = r"""(?:[\x60'"\s;]|\\[nr]|$)"""
_END = r"(?![A-Za-z0-9_])"
#: gitleaks matches the name before its keyword as well, in order to show it; here it would only cost time.
_GITLEAKS_LEAD = r"[\w.-]{0,50}?"
#: Marks a rule that recognises a secret by the name it is given, not by its shape: the secret is a group of its match.
_GITLEAKS_ASSIGNMENT = r"(?:=|>|:{1,3}=|\|\||:|=>|\?=|,)"


@dataclass(frozen=True, slots=True)
class Format:
    """A shape. Every such secret has one of the `markers` (lower case) in it.

    `grouped`: the secret is a group of the match, the longest.
    """

    kind: str
    markers: tuple[str, ...]
    pattern: Callable[[], re.Pattern[str]]
    grouped: bool = False
    entropy: float = 0.0

    def spans(self, text: str) -> list[tuple[int, int, str]]:
        """Returns where such secrets stand."""
        found = []
        for match in self.pattern().finditer(text):
            start, end = _longest_group(match) if self.grouped else match.span()
            if end > start and (not self.entropy or entropy(text[start:end]) >= self.entropy):
                found.append((start, end, self.kind))
        return found


def entropy(text: str) -> float:
    """Returns the bits per character (Shannon)."""
    return -sum(n / len(text) * math.log2(n / len(text)) for n in Counter(text).values())


def _longest_group(match: re.Match[str]) -> tuple[int, int]:
    spans = [match.span(number) for number in range(1, (match.re.groups or 0) + 1)]
    return max(spans or [match.span()], key=lambda span: span[1] - span[0])


@functools.cache
def own_formats() -> tuple[Format, ...]:
    """Reads our own shapes (5 ms, once)."""
    return tuple(map(format_of, (shape for name in _OWN_FILES for shape in read(name, ShapeFile).shape)))


def format_of(shape: Shape) -> Format:
    """Makes a format of a rule; more characters than a token needs belong to it, whatever its vendor says."""
    pattern = f"{_START}{shape.filled(shape.token)}" if shape.token else shape.regex
    return Format(shape.kind, shape.markers, functools.cache(lambda: re.compile(pattern)), entropy=shape.entropy)


@functools.cache
def library_formats() -> tuple[Format, ...]:
    """Reads the rules of gitleaks that are used here (15 ms, once)."""
    import tomllib

    spec = importlib.util.find_spec("secretscreen")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("secretscreen")
    rules = tomllib.loads((Path(spec.submodule_search_locations[0]) / "gitleaks.toml").read_text("utf-8"))["rules"]
    chosen = read("library.toml", LibraryFile)
    return tuple(
        Format(
            kind=rule["id"],
            markers=tuple(keyword.lower() for keyword in rule["keywords"]),
            pattern=functools.cache(functools.partial(_compiled, rule["regex"])),
            grouped=_GITLEAKS_ASSIGNMENT in rule["regex"],
            entropy=rule.get("entropy", 0.0),
        )
        for rule in rules
        if "regex" in rule and "keywords" in rule and not _is_left_out(rule["id"], chosen)
    )


def _is_left_out(name: str, chosen: LibraryFile) -> bool:
    by_name = chosen.left_out_by_name
    return name in chosen.left_out or name.startswith(by_name.begins) or any(part in name for part in by_name.contains)


def _compiled(pattern: str) -> re.Pattern[str]:
    """Translates a regular expression of Go's into one of Python's."""
    pattern = pattern.replace(_GITLEAKS_LEAD, "").replace(_GITLEAKS_END, _END).replace(r"\z", r"\Z")
    while (at := pattern.find("(?i)", 1)) > 0:
        end = _end_of_group(pattern, at)
        pattern = f"{pattern[:at]}(?i:{pattern[at + 4 : end]}){pattern[end:]}"
    return re.compile(pattern)


def _end_of_group(pattern: str, at: int) -> int:
    """Returns where the group ends in which a flag is switched on: that is how far it reaches in Go."""
    depth, in_class, index = 0, False, at + 4
    while index < len(pattern):
        char = pattern[index]
        if char == "\\":
            index += 1
        elif in_class:
            in_class = char != "]"
        elif char == "[":
            in_class = True
            # A bracket that comes first belongs to the class.
            index += pattern[index + 1 : index + 2] == "]"
        elif char == "(":
            depth += 1
        elif char == ")":
            depth -= 1
            if depth < 0:
                return index
        index += 1
    return index
