"""Cuts what is appended to a log into lines (pure): feed bytes, get whole lines and where each begins."""

from __future__ import annotations

from collections.abc import Iterator

from sprite.memory.claude_code.entries import MAX_LINE_BYTES


class Lines:
    """`feed` returns the lines that its bytes complete; None stands for one that is too long to be held in memory."""

    def __init__(self, limit: int = MAX_LINE_BYTES) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._held = 0
        #: Where the line begins that is not whole yet.
        self.at = 0
        #: Up to where bytes were fed.
        self.fed = 0

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes | None]]:
        """Takes the next bytes of the file; yields (offset of its first byte, line without its end)."""
        begin = 0
        while (end := data.find(b"\n", begin)) >= 0:
            self._hold(data[begin:end])
            self.fed += end + 1 - begin
            begin = end + 1
            line = None if self._held > self._limit else b"".join(self._parts)
            at, self.at = self.at, self.fed
            self._parts, self._held = [], 0
            yield at, line
        self._hold(data[begin:])
        self.fed += len(data) - begin

    def _hold(self, part: bytes) -> None:
        self._held += len(part)
        if self._held > self._limit:
            self._parts = []
        elif part:
            self._parts.append(part)
