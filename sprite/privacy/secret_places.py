"""Secrets recognised by the place they stand in: URLs, headers, command lines, PEM blocks, and beside their other half.

The rules are data, `rules/places.toml`; here is how they are applied.
"""

from __future__ import annotations

import base64
import functools
import re
from collections.abc import Iterator

from sprite.privacy.rule_files import Block, Half, Place, PlaceFile, one_of, read
from sprite.privacy.secret_formats import entropy

Span = tuple[int, int, str]

#: Lines of base64, also where their line ends are escaped, numbered or quoted.
_KEY_LINES = re.compile(r"(?:(?:\s|\\[nrt]|[\"'+,>|:]|\d{1,5}[\t→]){0,16}+[A-Za-z0-9+/=]{16,200}+)++")
_KEY_MATERIAL = re.compile(r"[A-Za-z0-9+/=]{24}")
#: The longest key in use has some 13,000 characters.
_LONGEST_KEY = 20_000
#: Two halves of one credential stand this near to each other.
_NEAR = 300


@functools.cache
def places() -> Places:
    """Reads and compiles the rules about places (2 ms, once)."""
    return Places(read("places.toml", PlaceFile))


class Places:
    """The rules about places, compiled."""

    def __init__(self, rules: PlaceFile) -> None:
        variable = re.compile(one_of(rule.regex for rule in rules.variable))
        places = [_PlaceRule(rule, variable) for rule in rules.place]
        self._in_text: list[_PlaceRule | _BlockRule] = [*places, *map(_BlockRule, rules.block)]
        self._halves: list[_PlaceRule | _BlockRule] = [_HalfRule(rule, variable) for rule in rules.half]

    def spans(self, text: str, lower: str, tokens: str) -> Iterator[Span]:
        """Yields every secret that its place gives away.

        `lower` is the text in lower case, `tokens` the part of it that is long enough to be a token.
        """
        for rules, searched in ((self._in_text, lower), (self._halves, tokens)):
            for rule in rules:
                for marker in rule.markers:
                    if marker in searched:
                        yield from rule.spans(text)
                        break


class _PlaceRule:
    """Finds what a pattern calls a secret, and judges it."""

    def __init__(self, rule: Place, variable: re.Pattern[str]) -> None:
        self.markers = rule.markers
        self._rule, self._variable = rule, variable
        self._pattern = re.compile(rule.regex)
        self._contains = [re.compile(pattern) for pattern in rule.contains]

    def spans(self, text: str, start: int = 0, end: int | None = None) -> Iterator[Span]:
        """Yields such secrets in a part of the text."""
        if self._rule.also not in text:
            return
        for match in self._pattern.finditer(text, start, len(text) if end is None else end):
            secret = match["secret"].rstrip(self._rule.trim) if self._rule.trim else match["secret"]
            if self._is_secret(secret) or (self._rule.basic and _is_user_and_password(secret)):
                at = match.start("secret")
                yield (at, at + len(secret), self._rule.kind)

    def _is_secret(self, secret: str) -> bool:
        rule = self._rule
        if len(secret) < rule.shortest or not all(pattern.search(secret) for pattern in self._contains):
            return False
        if (not rule.numbers and secret.isdigit()) or (not rule.variables and self._variable.match(secret)):
            return False
        return not rule.entropy or entropy(secret) >= rule.entropy


def _is_user_and_password(secret: str) -> bool:
    """Returns whether this is what HTTP calls basic: base64 of `user:password`."""
    try:
        return b":" in base64.b64decode(secret, validate=True)
    except ValueError:
        return False


class _HalfRule(_PlaceRule):
    """Finds a secret near its other half."""

    def __init__(self, rule: Half, variable: re.Pattern[str]) -> None:
        super().__init__(rule, variable)
        self._beside = re.compile(rule.beside)

    def spans(self, text: str, start: int = 0, end: int | None = None) -> Iterator[Span]:
        """Yields such secrets around every other half."""
        searched = start
        for match in self._beside.finditer(text, start, len(text) if end is None else end):
            begin = max(searched, match.start() - _NEAR)
            searched = match.end() + _NEAR
            yield from super().spans(text, begin, searched)


class _BlockRule:
    """Finds blocks from each beginning to its end, or (cut off) as far as lines of a key follow it."""

    def __init__(self, rule: Block) -> None:
        self.markers = rule.markers
        self._rule = rule
        self._begin, self._end = re.compile(rule.begin), re.compile(rule.end)

    def spans(self, text: str) -> Iterator[Span]:
        """Yields the blocks."""
        for start, end in self._blocks(text):
            lines = _KEY_LINES.match(text, end) if self._rule.tail else None
            yield (start, lines.end() if lines else end, self._rule.kind)

    def _blocks(self, text: str) -> Iterator[tuple[int, int]]:
        at = 0
        has_end = True
        while (begin := self._begin.search(text, at)) is not None:
            at = begin.end()
            end = self._end.search(text, at) if has_end else None
            # Searched again for every beginning, a missing end would make the time quadratic.
            has_end = end is not None
            lines = _KEY_LINES.match(text, at)
            if end is not None and end.start() - at <= _LONGEST_KEY:
                at = end.end()
                # Code names both lines without a key between them.
                if _KEY_MATERIAL.search(text, begin.end(), end.start()):
                    yield (begin.start(), at)
            elif lines is not None:
                at = lines.end()
                yield (begin.start(), at)
