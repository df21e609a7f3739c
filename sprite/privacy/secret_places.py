"""Secrets recognised by the place they stand in: URLs, headers, command lines, PEM blocks, and beside their other half.

The rules are data, `rules/places.toml`; here is how they are applied.
"""

from __future__ import annotations

import base64
import functools
import re
from collections.abc import Iterable, Iterator

from sprite.privacy.secret_formats import Block, Half, Place, PlaceFile, entropy, one_of, read

Span = tuple[int, int, str]

#: Lines of base64, also where their line ends are escaped, numbered or quoted.
_KEY_LINES = re.compile(r"(?:(?:\s|\\[nrt]|[\"'+,>|:]|\d{1,5}[\t→]){0,16}[A-Za-z0-9+/=]{16,200}+)+")
#: One of them, and what stands between two.
_KEY_LINE = re.compile(r"(?<![A-Za-z0-9+/=])(?<!\\)[A-Za-z0-9+/=]{16,200}+|(?<=\\[nr])[A-Za-z0-9+/=]{16,200}+")
_BETWEEN_LINES = re.compile(r"(?:\s|\\[nrt]|[\"'+,>|:]|\d{1,5}[\t→]){0,24}")
_KEY_MATERIAL = re.compile(r"[A-Za-z0-9+/=]{24}")
#: The longest key in use has some 13,000 characters.
_LONGEST_KEY = 20_000
#: Two halves of one credential stand this near to each other.
_NEAR = 300
#: Rules about longer tokens are tried only where there is one.
_LONG_TOKEN = re.compile(r"[^\n]{40}")
#: What a rule demands before its match stands this near.
_NEAR_BEFORE = 40


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
        self._without_long = [rule for rule in self._in_text if not rule.needs_long]
        self._halves: list[_PlaceRule | _BlockRule] = [_HalfRule(rule, variable) for rule in rules.half]

    def spans(self, text: str, lower: str, tokens: str) -> Iterator[Span]:
        """Yields every secret that its place gives away.

        `lower` is the text in lower case, `tokens` the part of it that is long enough to be a token, one per line.
        """
        rules = self._in_text if _LONG_TOKEN.search(tokens) else self._without_long
        if text.isascii():
            rules = [rule for rule in rules if rule.is_ascii]
        yield from _tried(rules, text, lower, lower)
        yield from _tried(self._halves, text, lower, tokens)


def _tried(rules: Iterable[_PlaceRule | _BlockRule], text: str, lower: str, searched: str) -> Iterator[Span]:
    """What the rules find of which a marker is in what is searched; each marker is looked for once."""
    looked: dict[str, bool] = {}
    for rule in rules:
        for marker in rule.markers:
            there = looked.get(marker)
            if there is None:
                there = looked[marker] = marker in searched
            if there:
                yield from rule.spans(text, lower)
                break


def _key_before(text: str, start: int, end: int) -> int | None:
    """Where the lines of a key begin that end there; None if there is no key."""
    begin = None
    for line in reversed(list(_KEY_LINE.finditer(text, start, end))):
        if not _BETWEEN_LINES.fullmatch(text, line.end(), end if begin is None else begin):
            break
        begin = line.start()
    return begin if begin is not None and _KEY_MATERIAL.search(text, begin, end) else None


class _PlaceRule:
    """Finds what a pattern calls a secret, and judges it."""

    def __init__(self, rule: Place, variable: re.Pattern[str]) -> None:
        self.markers = rule.markers
        self.is_ascii = any(map(str.isascii, rule.markers))
        self.needs_long = rule.long
        self._rule, self._variable = rule, variable
        self._pattern = re.compile(rule.regex)
        self._contains = [re.compile(pattern) for pattern in rule.contains]
        self._before = re.compile(rf"(?:{rule.filled(rule.before)})\Z") if rule.before else None

    def spans(self, text: str, lower: str, start: int = 0, end: int | None = None) -> Iterator[Span]:
        """Yields such secrets in a part of the text."""
        if self._rule.also not in text:
            return
        searched = lower if self._rule.lower else text
        for match in self._pattern.finditer(searched, start, len(text) if end is None else end):
            if self._before and not self._before.search(lower, max(0, match.start() - _NEAR_BEFORE), match.start()):
                continue
            secret = text[match.start("secret") : match.end("secret")]
            secret = secret.rstrip(self._rule.trim) if self._rule.trim else secret
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

    def spans(self, text: str, lower: str, start: int = 0, end: int | None = None) -> Iterator[Span]:
        """Yields such secrets around every other half."""
        searched = start
        for match in self._beside.finditer(text, start, len(text) if end is None else end):
            begin = max(searched, match.start() - _NEAR)
            searched = match.end() + _NEAR
            yield from super().spans(text, lower, begin, searched)


class _BlockRule:
    """Finds blocks from each beginning to its end, or (cut off) as far as lines of a key follow it."""

    def __init__(self, rule: Block) -> None:
        self.markers = rule.markers
        self.is_ascii, self.needs_long = True, False
        self._rule = rule
        self._begin, self._end = re.compile(rule.begin), re.compile(rule.end)

    def spans(self, text: str, _lower: str) -> Iterator[Span]:
        """Yields the blocks."""
        after = 0
        for start, end in self._blocks(text):
            yield from self._ends_without_beginning(text, after, start)
            lines = _KEY_LINES.match(text, end) if self._rule.tail else None
            after = lines.end() if lines else end
            yield (start, after, self._rule.kind)
        yield from self._ends_without_beginning(text, after, len(text))

    def _ends_without_beginning(self, text: str, start: int, end: int) -> Iterator[Span]:
        """The lines of keys whose beginning was cut off: what stands before an end, as far as it reads as a key."""
        for last in self._end.finditer(text, start, end) if not self._rule.tail else ():
            begin = _key_before(text, max(start, last.start() - _LONGEST_KEY), last.start())
            start = last.end()
            if begin is not None:
                yield (begin, last.end(), self._rule.kind)

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
