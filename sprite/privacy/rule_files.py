"""Read the rules about secrets from `rules/*.toml`. The top of each file explains its fields.

Knows the parts of a rule. `secret_formats`, `secret_places`, `secret_names` and `secret_values` apply them.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

import msgspec

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
