"""A JSON body without its long strings: small enough to be parsed, whole enough to be judged.

Pure: bytes in by chunks, a parsed value out. A conversation's bytes are nearly all in long strings (text, images), and
none of these is a name or a kind of content; each is replaced by a short name that no client can guess, by which its
length is known. What is left is parsed strictly: UTF-8, no name twice in one object.
"""

from __future__ import annotations

import json
import re
import secrets
from typing import Any

from bridge.llm.json_scanner import MalformedError

#: Strings that are kept: plain ones of up to 64 bytes, longer ones where they have escapes.
_SHORT = rb'"[^"\\]{0,64}+(?:\\.[^"\\]{0,64}+){0,8}+"'
_SHORT_BYTES = 1024
_RUN = re.compile(rb'(?:[^"]++|%b)*+' % _SHORT, re.DOTALL)
_STRING_REST = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*+', re.DOTALL)
#: Leaves this process nowhere.
_MARK = secrets.token_hex(8)
_QUOTE = ord('"')
#: A conversation of a million tokens has some ten thousand blocks, a hundred bytes each.
_MAX_BYTES = 4 << 20
#: Each costs a hundred times a byte.
_MAX_VALUES = 400_000


class Skeleton:
    """`feed` every chunk, then `parsed`, once. Both raise MalformedError, in words a person understands."""

    def __init__(self) -> None:
        self._kept = bytearray()
        self._rest = b""  # a string that the chunk cut, as long as it may be a short one
        self._is_open = False  # whether a long string is being left out
        self._length = 0
        self._lengths: list[int] = []

    def feed(self, data: bytes) -> None:
        """Takes one more chunk."""
        if self._rest:
            data = self._rest + data
            self._rest = b""
        position, size = 0, len(data)
        while position < size:
            if self._is_open:
                position = self._leave_out(data, position)
                continue
            end = _end(_RUN, data, position)
            self._kept += data[position:end]
            if end < size:
                if size - end <= _SHORT_BYTES and _end(_STRING_REST, data, end + 1) >= size - 1:
                    self._rest = data[end:]
                    break
                self._is_open = True
                self._length = 0
                end += 1
            position = end
        if len(self._kept) > _MAX_BYTES:
            raise MalformedError("The body has too much besides its texts.")

    def parsed(self) -> Any:
        """The value."""
        if self._is_open or self._rest:
            raise MalformedError("The body is not a complete JSON object.")
        kept = self._kept
        if sum(kept.count(byte) for byte in (b",", b"[", b"{")) > _MAX_VALUES:
            raise MalformedError("The body's JSON has too many values.")
        try:
            return json.loads(kept.decode(), object_pairs_hook=_object)
        except MalformedError:
            raise
        except UnicodeDecodeError as error:
            raise MalformedError("The body is not UTF-8.") from error
        except (ValueError, RecursionError) as error:
            raise MalformedError("The body is not JSON that can be read.") from error

    def length(self, string: str) -> int:
        """The bytes that a string of the parsed value had in the body."""
        mark, _, number = string.partition(":")
        return self._lengths[int(number)] if mark == _MARK else len(string.encode("utf-8", "surrogatepass"))

    def _leave_out(self, data: bytes, position: int) -> int:
        end = _end(_STRING_REST, data, position)
        self._length += end - position
        if end == len(data):
            return end
        if data[end] != _QUOTE:  # a backslash, and the chunk ends before what it escapes
            self._rest = data[end:]
            return len(data)
        self._kept += b'"%b:%d"' % (_MARK.encode(), len(self._lengths))
        self._lengths.append(self._length)
        self._is_open = False
        return end + 1


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in found if names.count(name) > 1)
        raise MalformedError(f"The body says `{twice[:64]}` twice in one object.")
    return found


def _end(pattern: re.Pattern[bytes], data: bytes, position: int) -> int:
    """Where the pattern, which matches the empty string as well, stops."""
    found = pattern.match(data, position)
    return found.end() if found else position
