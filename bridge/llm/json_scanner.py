"""Reads a few top-level values of a JSON object while its bytes pass by in chunks, without keeping the rest.

Pure: bytes in, raw values out. The top level is checked strictly and a wanted key may stand there once only, and in no
other case (Go's decoder takes `Model` for `model`), so that the upstream, parsing the same bytes, finds the same
values; deeper levels are only walked over, and whether they are valid JSON is left to that reader. No chunk is ever
copied or joined; the work per byte is bounded.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from enum import Enum, auto

#: Longer wanted values are refused: a model's name, a number, a response's `usage`.
MAX_VALUE_BYTES = 1 << 14
#: Written with escapes a wanted key takes six bytes a letter; a longer key is none of ours.
_MAX_KEY_BYTES = 256
#: Brackets that the regular expression cannot skip over by itself (those that hold others). A conversation of a
#: million tokens has some ten thousand; without a bound 32 MB of brackets would keep the loop busy for seconds.
_MAX_STEPS = 200_000
#: The API knows some thirty; each costs more than a bracket.
_MAX_NAMES = 1000

_STRING = rb'[^"\\]*+(?:\\.[^"\\]*+)*+'
_PLAIN = rb"[\s0-9A-Za-z+\-.,:]++"
#: Levels below a value that are skipped in one match: a request has messages of contents of blocks with sources.
_LEVELS = 6


def _inside(levels: int) -> bytes:
    """What may stand in a container: scalars, whole strings, and whole containers of fewer levels.

    Possessive throughout: what does not end within a chunk is given up at once, so that no byte is looked at more than
    once for each level.
    """
    if not levels:
        return rb'(?:%b|"%b")*+' % (_PLAIN, _STRING)
    return rb'(?:%b|"%b"|[\[{]%b[\]}])*+' % (_PLAIN, _STRING, _inside(levels - 1))


_STRING_REST = re.compile(_STRING, re.DOTALL)
#: Everything up to a bracket or a string whose end is not in this chunk (or too deep).
_FLAT = re.compile(_inside(_LEVELS), re.DOTALL)
#: A whole member and what ends it: most members of most bodies.
_MEMBER = re.compile(
    rb'[ \t\r\n]*+"([^"\\]{0,256}+)"[ \t\r\n]*+:[ \t\r\n]*+'
    rb'("%b"|[\-0-9tfn][0-9A-Za-z+\-.]*+|[\[{]%b[\]}])[ \t\r\n]*+([,}])' % (_STRING, _inside(_LEVELS - 1)),
    re.DOTALL,
)
_SCALAR = re.compile(rb"[0-9A-Za-z+\-.]*+")
_SPACE = re.compile(rb"[ \t\r\n]*+")
_QUOTE, _BACKSLASH, _OPEN, _CLOSE = b'"\\{}'
_OPENING, _CLOSING = b"{[", b"}]"


class MalformedError(ValueError):
    """The bytes are not one JSON object, in words a person understands."""


class _At(Enum):
    START = auto()
    FIRST_KEY = auto()  # or the end of an empty object
    KEY = auto()
    IN_KEY = auto()
    COLON = auto()
    VALUE = auto()
    IN_STRING = auto()
    IN_SCALAR = auto()
    IN_CONTAINER = auto()
    AFTER_VALUE = auto()
    END = auto()


class TopLevelScanner:
    """`feed` every chunk, then `finish`; `values` holds the raw JSON of the wanted keys seen so far."""

    def __init__(self, wanted: Collection[str]) -> None:
        self.values: dict[str, bytes] = {}
        self._wanted = frozenset(wanted)
        self._at = _At.START
        self._depth = 0
        self._steps = 0
        self._names = 0
        self._is_escaped = False
        self._key: bytearray = bytearray()
        self._name: str | None = None  # the wanted key whose value is being read
        self._value = bytearray()

    def feed(self, data: bytes) -> None:
        """Walks over one more chunk. MalformedError as soon as it cannot be a JSON object any more."""
        position, size = 0, len(data)
        while position < size:
            if self._at is _At.FIRST_KEY or self._at is _At.KEY:
                position = self._members(data, position)
                if position == size:
                    return
            begun = position
            was_value = self._at in _INSIDE
            position = self._step(data, position)
            # A string's or a container's first byte is seen in VALUE; from there on it is being read.
            if self._name is not None and (was_value or self._at in _INSIDE):
                self._keep(data[begun:position])
            if self._at is _At.AFTER_VALUE:
                self._take()

    def finish(self) -> dict[str, bytes]:
        """The wanted values, raw, by key. MalformedError when the object has not ended."""
        if self._at is not _At.END:
            raise MalformedError("The body is not a complete JSON object.")
        return self.values

    def _members(self, data: bytes, position: int) -> int:
        """Takes the members that are in this chunk as a whole, each in one match."""
        match = _MEMBER.match
        end = b","
        while end == b"," and (found := match(data, position)) is not None:
            position = found.end()
            key, value, end = found.groups()
            if (name := self._wanted_name(key)) is not None:
                self._name = name
                self._value.clear()
                self._keep(value)
                self._take()
            self._at = _At.KEY if end == b"," else _At.END
        return position

    def _take(self) -> None:
        """The wanted value has ended."""
        if self._name is not None:
            self.values[self._name] = bytes(self._value).strip()
            self._name = None

    def _step(self, data: bytes, position: int) -> int:
        match self._at:
            case _At.IN_CONTAINER:
                return self._container(data, position)
            case _At.IN_STRING | _At.IN_KEY:
                return self._string(data, position)
            case _At.IN_SCALAR:
                return self._scalar(data, position)
            case _:
                return self._between(data, position)

    def _between(self, data: bytes, position: int) -> int:
        """White space, and the one byte after it that says what comes next."""
        position = _end(_SPACE, data, position)
        if position == len(data):
            return position
        byte = data[position]
        match self._at:
            case _At.START if byte == _OPEN:
                self._at = _At.FIRST_KEY
            case _At.FIRST_KEY | _At.KEY if byte == _QUOTE:
                self._key.clear()
                self._at = _At.IN_KEY
            case _At.FIRST_KEY | _At.AFTER_VALUE if byte == _CLOSE:
                self._at = _At.END
            case _At.COLON if byte == ord(":"):
                self._name = self._wanted_name(bytes(self._key))
                self._value.clear()
                self._at = _At.VALUE
            case _At.AFTER_VALUE if byte == ord(","):
                self._at = _At.KEY
            case _At.VALUE:
                return self._value_begins(byte, position)
            case _:
                raise MalformedError(f"The body is not a JSON object: {chr(byte)!r} stands where it cannot.")
        return position + 1

    def _value_begins(self, byte: int, position: int) -> int:
        if byte == _QUOTE:
            self._at = _At.IN_STRING
        elif byte in _OPENING:
            self._depth = 1
            self._at = _At.IN_CONTAINER
        elif byte in b"-0123456789tfn":
            self._at = _At.IN_SCALAR
            return position  # its first byte is part of it
        else:
            raise MalformedError(f"The body is not a JSON object: {chr(byte)!r} stands where a value should.")
        return position + 1

    def _string(self, data: bytes, position: int) -> int:
        """The rest of a string, be it a key, a value, or inside a container."""
        begun = position
        if self._is_escaped:
            position += 1
            self._is_escaped = False
        end = _end(_STRING_REST, data, position)
        if end < len(data) and data[end] == _BACKSLASH:  # the chunk ends between it and what it escapes
            self._is_escaped = True
            end += 1
            self._collect_key(data, begun, end)
            return end
        self._collect_key(data, begun, end)
        if end == len(data):
            return end
        if self._at is _At.IN_KEY:
            self._at = _At.COLON
        else:
            self._at = _At.IN_CONTAINER if self._depth else _At.AFTER_VALUE
        return end + 1

    def _collect_key(self, data: bytes, begun: int, end: int) -> None:
        if self._at is _At.IN_KEY and len(self._key) <= _MAX_KEY_BYTES:
            self._key += data[begun : min(end, begun + _MAX_KEY_BYTES + 1)]

    def _scalar(self, data: bytes, position: int) -> int:
        end = _end(_SCALAR, data, position)
        if end < len(data):
            self._at = _At.AFTER_VALUE
        return end

    def _container(self, data: bytes, position: int) -> int:
        """The rest of a value's objects and lists, up to its end, the chunk's, or a string that the chunk cuts."""
        size = len(data)
        while (position := _end(_FLAT, data, position)) < size:
            byte = data[position]
            position += 1
            self._count_step()
            if byte == _QUOTE:
                self._at = _At.IN_STRING
                return position
            if byte in _OPENING:
                self._depth += 1
            elif byte in _CLOSING:
                self._depth -= 1
                if not self._depth:
                    self._at = _At.AFTER_VALUE
                    return position
            else:
                raise MalformedError(f"The body is not JSON: {chr(byte)!r} stands outside a string.")
        return position

    def _count_step(self) -> None:
        self._steps += 1
        if self._steps > _MAX_STEPS:
            raise MalformedError("The body's JSON has too many levels and lists.")

    def _wanted_name(self, key: bytes) -> str | None:
        self._count_name()
        if len(key) > _MAX_KEY_BYTES:
            return None
        if key.isascii() and _BACKSLASH not in key:
            name = key.decode()
        else:
            try:
                name = str(json.loads(b'"%b"' % key, strict=False))
            except ValueError as error:
                raise MalformedError("The body is not JSON: a name in it cannot be read.") from error
        folded = name.casefold()
        if folded not in self._wanted:
            return None
        if name != folded:
            raise MalformedError(f"The body says `{name}` where `{folded}` is meant.")
        if name in self.values:
            raise MalformedError(f"The body says `{name}` twice.")
        return name

    def _count_name(self) -> None:
        self._names += 1
        if self._names > _MAX_NAMES:
            raise MalformedError("The body's JSON has too many names.")

    def _keep(self, data: bytes) -> None:
        if len(self._value) + len(data) > MAX_VALUE_BYTES:
            raise MalformedError(f"The body's `{self._name}` is too long.")
        self._value += data


_INSIDE = frozenset({_At.IN_STRING, _At.IN_SCALAR, _At.IN_CONTAINER})


def _end(pattern: re.Pattern[bytes], data: bytes, position: int) -> int:
    """Where the pattern, which matches the empty string as well, stops."""
    found = pattern.match(data, position)
    return found.end() if found else position
