"""A streamed reply, cut into finished pieces and a growing rest.

Pure. A piece is a paragraph, list, table or fenced block of Markdown, or one line for plain output. The final text
completes the deltas, without repeating them.
"""

from __future__ import annotations

from bridge.chat.untrusted import clean

_FENCES = ("```", "~~~")


class StreamedReply:
    """`feed` deltas, `finish` with the whole text; each returns the newly finished pieces."""

    def __init__(self, *, by_line: bool = False) -> None:
        self._by_line = by_line
        self._given: str
        self._reset()

    @property
    def tail(self) -> str:
        """Return the unfinished rest."""
        return self._pending

    def feed(self, delta: str) -> list[str]:
        """Add the next delta."""
        self._pending += clean(delta)
        return self._cut()

    def finish(self, whole: str | None = None) -> list[str]:
        """End the text. Return its rest: of `whole` if given, else of the deltas."""
        if whole is not None:
            self._pending = _after(clean(whole), self._given)
            self._begin_scan()
        pieces = self._cut()
        if self._pending.strip():
            pieces.append(self._pending.rstrip("\n") if self._by_line else self._pending.strip("\n"))
        self._reset()
        return pieces

    def _reset(self) -> None:
        self._pending = ""
        self._given = ""
        self._begin_scan()

    def _begin_scan(self) -> None:
        """Reset the scan. Pieces end outside of fences, so the next one starts without state."""
        self._scanned = 0
        self._fence = ""
        self._blank = False

    def _cut(self) -> list[str]:
        pieces: list[str] = []
        while True:
            cut = self._next_line_end() if self._by_line else self._next_block_end()
            if cut is None:
                return pieces
            piece, self._pending = self._pending[:cut], self._pending[cut:]
            self._given += piece
            self._begin_scan()
            if self._by_line:
                pieces.append(piece.removesuffix("\n"))
            elif piece.strip():
                pieces.append(piece.strip("\n"))

    def _next_line_end(self) -> int | None:
        end = self._pending.find("\n")
        return None if end == -1 else end + 1

    def _next_block_end(self) -> int | None:
        """Return the end of a block: a line after a blank one, outside of a fence.

        An indented line continues the list item before the blank. Each line is scanned once.
        """
        while self._scanned < len(self._pending):
            start = self._scanned
            if self._blank and not self._fence and not self._pending[start].isspace():
                return start
            end = self._pending.find("\n", start)
            if end == -1:
                return None
            line = self._pending[start:end].strip()
            self._scanned = end + 1
            self._blank = not line
            if self._fence:
                if line.startswith(self._fence):
                    self._fence = ""
            elif line.startswith(_FENCES):
                self._fence = line[:3]
        return None


def _after(whole: str, given: str) -> str:
    if whole.startswith(given):
        return whole[len(given) :]
    # The final text may be trimmed, unlike the stream.
    inner, done = whole.strip(), given.strip()
    return inner[len(done) :] if inner.startswith(done) else whole
