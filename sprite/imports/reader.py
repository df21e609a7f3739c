"""The interface of all import readers, their report of skipped content, and reading of untrusted JSON files.

Files can have any size and encoding; lines and list entries are bounded. Values have the types of `json`, in any shape.
"""

from __future__ import annotations

import codecs
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

import msgspec

from sprite.imports.claude_code_entries import EARLIEST, LATEST, MAX_LINE_BYTES
from sprite.log.transcript import ImportedTurn

#: Damaged places listed one by one; the rest are counted.
MAX_NAMED = 50
#: Limit of distinct names of skipped things: a hostile file could have many.
MAX_KINDS = 100
OTHER_KINDS = "things of other names"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A path that cannot be imported, and the reason."""

    path: Path
    reason: str


@dataclass(frozen=True, slots=True)
class Note:
    """A person's note for an agent, to propose as a part of a memory file.

    `origin` is its path; `project` is its project, None for the user's own.
    """

    origin: str
    name: str
    project: str | None
    text: str


@dataclass(slots=True)
class Tally:
    """The readers' report beside the turns: all skipped content is counted."""

    refusals: list[Refusal] = field(default_factory=list)
    #: Files read.
    files: int = 0
    #: Unfinished turns, left for the next import.
    open: int = 0
    #: Sessions of this sprite's agent, which the log already has.
    own: set[str] = field(default_factory=set)
    damaged: int = 0
    named: list[tuple[Path, int, str]] = field(default_factory=list)
    #: Skipped things, by description.
    not_understood: Counter[str] = field(default_factory=Counter)

    def damage(self, path: Path, place: int, problem: str) -> None:
        """Count a skipped line, or entry, by its number."""
        self.damaged += 1
        if len(self.named) < MAX_NAMED:
            self.named.append((path, place, problem))

    def passed_over(self, what: str, number: int = 1) -> None:
        """Count known content that is not imported."""
        if what not in self.not_understood and len(self.not_understood) >= MAX_KINDS:
            what = OTHER_KINDS
        self.not_understood[what] += number

    def refuse(self, path: Path, reason: str | OSError) -> None:
        """Record a file that cannot be read to its end."""
        if isinstance(reason, OSError):
            reason = f"cannot be read: {reason.strerror or reason}"
        self.refusals.append(Refusal(path, reason))


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The readers' environment: `project_of` maps a folder in a log to its project.

    `own_sessions` are Claude Code's ids for this sprite's conversations, stored in `own_folder`. `has_session` returns
    whether a session is in the log. Times are Unix seconds.
    """

    now: float
    project_of: Callable[[Any], str | None]
    on_bytes: Callable[[int], object] = lambda _bytes: None
    own_sessions: frozenset[str] = frozenset()
    own_folder: Path | None = None
    has_session: Callable[[str], bool] = lambda _session: False


class Reader(Protocol):
    """Read the files of one program. `kind` is its name for `--as`, `name` its name for people."""

    kind: str
    name: str

    def recognises(self, path: Path, opening: bytes) -> bool:
        """Return whether the file belongs to the program, by its first bytes (or all, if there are no more)."""

    def read(self, paths: list[Path], around: Surroundings, tally: Tally) -> Iterator[ImportedTurn | Note]:
        """Yield the ended turns in order, or the notes."""


#: Numeric times are in seconds, or in milliseconds above the first limit.
_MOST_SECONDS, _MOST_MILLISECONDS = 1e11, 1e18
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_CHUNK = 1024 * 1024
#: The bytes that determine the end of a list entry.
_MARKS = re.compile(rb'["\[\]{},]')
#: The possessive group fails only at the end of the bytes, so it is also right in Python before 3.11.5 (gh-106052).
_STRING_END = re.compile(rb'[^"\\]*+(?:\\.[^"\\]*+)*"', re.DOTALL)


class UnreadableError(ValueError):
    """The data cannot be used; the message gives the reason."""


def decode(data: bytes) -> Any:
    """Return the value of a JSON text. UnreadableError with a reason if it is invalid."""
    if len(data) > MAX_LINE_BYTES:
        raise UnreadableError(f"longer than {MAX_LINE_BYTES // 2**20} MiB")
    try:
        return msgspec.json.decode(data)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        pass
    try:
        # Programs write lone surrogates unchanged, and some write NaN; Python's reader accepts both.
        return json.loads(data)
    except RecursionError:
        raise UnreadableError("not JSON: nested too deeply") from None
    except ValueError as error:
        raise UnreadableError(f"not JSON: {str(error).partition(chr(10))[0][:200]}") from None


def plain_text(data: bytes) -> str:
    """Return the text of a UTF-8 or UTF-16 file, with or without a BOM; damaged bytes are replaced."""
    if data.startswith(_UTF16):
        text = data.decode("utf-16", errors="replace")
    else:
        text = data.removeprefix(codecs.BOM_UTF8).decode("utf-8", errors="replace")
    return text.replace("\r\n", "\n").replace("\r", "\n").replace("\0", "")


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO]:
    """Open a file as UTF-8 bytes, whether it is UTF-8 or UTF-16."""
    with path.open("rb") as stream:
        start = stream.read(3)
        if start.startswith(_UTF16):
            stream.seek(0)
            yield cast("BinaryIO", _Recoded(io.TextIOWrapper(stream, encoding="utf-16", errors="replace", newline="")))
            return
        stream.seek(len(codecs.BOM_UTF8) if start == codecs.BOM_UTF8 else 0)
        yield stream


class _Recoded(io.RawIOBase):
    """A text stream as UTF-8 bytes, with only the methods used here."""

    def __init__(self, text: io.TextIOWrapper) -> None:
        self._text = text

    def read(self, size: int = -1, /) -> bytes:
        return self._text.read(size).encode("utf-8", errors="replace")

    def readline(self, size: int | None = -1, /) -> bytes:
        return self._text.readline(-1 if size is None else size).encode("utf-8", errors="replace")


def lines(
    path: Path, on_bytes: Callable[[int], object], on_damage: Callable[[int, str], object]
) -> Iterator[tuple[int, Any]]:
    """Yield the number and the value of each line; `on_damage` receives bad line numbers and reasons.

    The excess of an overlong line is skipped without holding it in memory.
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
    """Yield the offset and the bytes of each entry of a JSON list, without holding the list.

    An overlong entry is truncated. UnreadableError if the stream is no list, ends within it, or is longer than
    `most_bytes`.
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
    """Find the entries of a list in a stream of bytes."""

    def __init__(self) -> None:
        self._kept = bytearray()
        #: The stream offset of the buffer, and the number of its bytes already examined.
        self._base = self._looked = 0
        #: Bytes dropped from the middle of an overlong entry.
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
            # Too long: its beginning suffices for the report, but its end must still be found.
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
        # Only the trailing backslashes must be examined again.
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
    """Return the Unix seconds of a time in seconds, milliseconds or ISO 8601; None if it is invalid."""
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
    """Return a value that should be a string, or an empty string for any other type."""
    return value if isinstance(value, str) else ""
