"""An agent's reply as it streams in: what is finished can be drawn for good, the rest is still growing.

Pure. A piece is a paragraph, list, table or fenced block of Markdown (or one line, for plain output); the
final text completes what the deltas began, and is never given out twice.
"""

from __future__ import annotations

from bridge.chat.untrusted import clean

_FENCES = ("```", "~~~")


class StreamedReply:
    """`feed` deltas, `finish` with the whole; each returns the pieces that are complete by now."""

    def __init__(self, *, by_line: bool = False) -> None:
        self._by_line = by_line
        self._reset()

    @property
    def tail(self) -> str:
        """What has come but is not complete yet."""
        return self._pending

    def feed(self, delta: str) -> list[str]:
        """Takes the next piece of the stream."""
        if self._broken:
            return []
        self._pending += clean(delta)
        return self._cut()

    def lose(self) -> None:
        """Deltas were missed: nothing more is believed until the whole text comes."""
        self._broken = True
        self._pending = ""

    def finish(self, whole: str | None = None) -> list[str]:
        """Ends the text: with the `whole`, what of it is not given out yet; without, what has come."""
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
        self._broken = False
        self._begin_scan()

    def _begin_scan(self) -> None:
        """Pieces end outside of fences, so what follows one begins afresh."""
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
        """Where a block ends: at a line that begins anew after a blank one, outside of a fence.

        An indented line goes on with the list item before the blank. Each line is looked at once.
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
    # The final text may be trimmed where the stream was not.
    inner, done = whole.strip(), given.strip()
    return inner[len(done) :] if inner.startswith(done) else whole
