"""JSON in files of any size, encoding and origin: lines and entries of lists, each bounded, none believed.

Bytes in, values out; knows no program. A value is what `json` makes of it, of any shape.
"""

from __future__ import annotations

import codecs
import io
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec

from sprite.memory.claude_code.entries import EARLIEST, LATEST, MAX_LINE_BYTES

#: A moment in a number is in seconds, or in milliseconds if it would be of another age.
_MOST_SECONDS, _MOST_MILLISECONDS = 1e11, 1e18
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_CHUNK = 1024 * 1024
#: The bytes that matter for where an entry of a list ends.
_MARKS = re.compile(rb'["\[\]{},]')
#: The possessive group fails only at the end of the bytes, so Python before 3.11.5 matches it rightly, too (gh-106052).
_STRING_END = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*"', re.DOTALL)


class UnreadableError(ValueError):
    """What is written cannot be used; the message says why."""


def decode(data: bytes) -> Any:
    """Returns the value of a JSON text; raises UnreadableError, in words."""
    if len(data) > MAX_LINE_BYTES:
        raise UnreadableError(f"longer than {MAX_LINE_BYTES // 2**20} MiB")
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        pass
    try:
        # Programs write lone surrogates as they get them, and some write NaN; Python's reader accepts both.
        return json.loads(data)
    except RecursionError:
        raise UnreadableError("not JSON: nested too deeply") from None
    except ValueError as error:
        raise UnreadableError(f"not JSON: {str(error).partition(chr(10))[0][:200]}") from None


def plain_text(data: bytes) -> str:
    """Returns the text of a file in UTF-8 or UTF-16, with or without a mark; damaged bytes are shown as such."""
    if data.startswith(_UTF16):
        text = data.decode("utf-16", errors="replace")
    else:
        text = data.removeprefix(codecs.BOM_UTF8).decode("utf-8", errors="replace")
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Opens a file as UTF-8, whichever of the usual encodings it is in."""
    with path.open("rb") as stream:
        start = stream.read(3)
        if start.startswith(_UTF16):
            stream.seek(0)
            yield cast("BinaryIO", _Recoded(io.TextIOWrapper(stream, encoding="utf-16", errors="replace", newline="")))
            return
        stream.seek(len(codecs.BOM_UTF8) if start == codecs.BOM_UTF8 else 0)
        yield stream


class _Recoded(io.RawIOBase):
    """A text stream as UTF-8 bytes, as far as the readers here need it."""

    def __init__(self, text: io.TextIOWrapper) -> None:
        self._text = text

    def read(self, size: int = -1, /) -> bytes:
        return self._text.read(size).encode("utf-8", errors="replace")

    def readline(self, size: int | None = -1, /) -> bytes:
        return self._text.readline(-1 if size is None else size).encode("utf-8", errors="replace")


def lines(
    path: Path, on_bytes: Callable[[int], object], on_damage: Callable[[int, str], object]
) -> Iterator[tuple[int, Any]]:
    """Yields the number and the value of each line; `on_damage` gets the number of a bad one and what is wrong.

    The rest of a line beyond the limit is skipped without being held in memory.
    """
    number = 0
    with opened(path) as stream:
        while line := stream.readline(MAX_LINE_BYTES + 1):
            number += 1
            on_bytes(len(line))
            is_whole = line.endswith(b"\n")
            if len(line) > MAX_LINE_BYTES and not is_whole:
                while (rest := stream.readline(_CHUNK)) and not rest.endswith(b"\n"):
                    on_bytes(len(rest))
            if not line.strip():
                continue
            try:
                yield number, decode(line)
            except UnreadableError as error:
                on_damage(number, f"{error}{'' if is_whole else ' (the file ends in the middle of it)'}")


def entries(stream: BinaryIO, most_bytes: int) -> Iterator[tuple[int, bytes]]:
    """Yields where each entry of a JSON list begins in a stream and what it is, without holding the list.

    An entry that is too long comes as its beginning. Raises UnreadableError where the stream is no list, ends within
    it, or is longer than `most_bytes`.
    """
    splitter = _Splitter()
    read = 0
    while chunk := stream.read(_CHUNK):
        read += len(chunk)
        if read > most_bytes:
            raise UnreadableError(f"longer than {most_bytes // 2**20:,} MiB")
        yield from splitter.feed(chunk)
    splitter.end()


class _Splitter:
    """Finds where the entries of a list begin and end, of bytes as they come."""

    def __init__(self) -> None:
        self._kept = bytearray()
        #: Where in the stream what is kept begins, and how much of it has been looked at.
        self._base = self._looked = 0
        #: How much of an entry that is too long was let go in its middle.
        self._let_go = 0
        self._depth = 0
        self._ended = False
        self._in_string = False

    def feed(self, chunk: bytes) -> Iterator[tuple[int, bytes]]:
        self._kept += chunk
        while not self._ended:
            if self._in_string and not self._leave_string():
                break
            found = _MARKS.search(self._kept, self._looked)
            if found is None:
                self._looked = len(self._kept)
                break
            yield from self._at(found[0], found.start())
        if len(self._kept) > MAX_LINE_BYTES + 2 * _CHUNK:
            # Too long: its beginning is enough for who says so; where it ends is still looked for.
            self._let_go += self._looked - 1 - (MAX_LINE_BYTES + 1)
            del self._kept[MAX_LINE_BYTES + 1 : self._looked - 1]
            self._looked = MAX_LINE_BYTES + 2
        if self._ended and self._kept.strip():
            raise UnreadableError("there is more behind the end of the list")

    def end(self) -> None:
        if not self._ended:
            raise UnreadableError(
                "the file ends in the middle of its list" if self._depth else "there is no list in it"
            )

    def _leave_string(self) -> bool:
        end = _STRING_END.match(self._kept, self._looked)
        if end is not None:
            self._looked, self._in_string = end.end(), False
            return True
        # Nothing before the last backslashes has to be looked at again.
        trailing = len(self._kept) - len(self._kept.rstrip(b"\\"))
        self._looked = max(self._looked, len(self._kept) - trailing)
        return False

    def _at(self, mark: bytes, place: int) -> Iterator[tuple[int, bytes]]:
        self._looked = place + 1
        if self._depth == 0:
            if mark != b"[" or self._kept[:place].strip():
                raise UnreadableError("it is no list")
            self._depth = 1
            self._drop(place + 1)
        elif mark == b'"':
            self._in_string = True
        elif mark in b"[{":
            self._depth += 1
        elif mark in b"]}":
            self._depth -= 1
            if self._depth == 0:
                self._ended = True
                yield from self._take(place)
        elif self._depth == 1:
            yield from self._take(place)

    def _take(self, place: int) -> Iterator[tuple[int, bytes]]:
        entry, base = bytes(self._kept[:place]), self._base
        self._drop(place + 1)
        if entry.strip():
            yield base, entry

    def _drop(self, number: int) -> None:
        del self._kept[:number]
        self._base += number + self._let_go
        self._looked = self._let_go = 0


def moment(value: Any) -> float | None:
    """Returns Unix seconds of a time as programs write it: seconds, milliseconds, ISO 8601; None if it is none."""
    if isinstance(value, str):
        try:
            at = datetime.fromisoformat(value)
            seconds = (at if at.tzinfo else at.replace(tzinfo=EARLIEST.tzinfo)).timestamp()
        except (ValueError, OverflowError):
            return None
    elif isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _MOST_MILLISECONDS:
        seconds = float(value) / 1000 if abs(value) > _MOST_SECONDS else float(value)
    else:
        return None
    return seconds if EARLIEST.timestamp() <= seconds < LATEST.timestamp() else None


def word(value: Any) -> str:
    """Returns a value that should be a string; an empty one where it is anything else."""
    return value if isinstance(value, str) else ""
