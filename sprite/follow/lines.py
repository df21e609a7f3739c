"""Split data appended to a log into lines (pure): feed bytes, get whole lines and their offsets."""

from __future__ import annotations

from collections.abc import Iterator

from sprite.memory.claude_code.entries import MAX_LINE_BYTES


class Lines:
    """Split bytes into lines. `feed` yields the completed lines; None stands for one that is too long."""

    def __init__(self, limit: int = MAX_LINE_BYTES) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._held = 0
        #: Offset of the incomplete line.
        self.at = 0
        #: Offset of the end of the fed bytes.
        self.fed = 0

    def feed(self, data: bytes) -> Iterator[tuple[int, bytes | None]]:
        """Add the next bytes of the file; yield (offset of its first byte, line without its newline)."""
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
