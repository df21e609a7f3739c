"""The newest durable events of one sprite, encoded once, for clients that were briefly disconnected (pure)."""

from __future__ import annotations

from collections import deque

#: Per sprite, shared by all its clients: minutes of work, affordable for a hundred sprites.
MAX_BYTES = 512 * 1024
MAX_FRAMES = 2000


class ReplayBuffer:
    """Contains every event above `base`, which is None while nothing is known."""

    def __init__(self) -> None:
        self._frames: deque[tuple[int, bytes]] = deque()
        self._bytes = 0
        self._base: int | None = None

    def begin(self, base: int | None) -> None:
        """Clear the buffer; events above `base` follow (None: above the one before the next)."""
        self._frames.clear()
        self._bytes = 0
        self._base = base

    def add(self, seq: int, frame: bytes) -> None:
        """Add the next event; drop the oldest if needed."""
        if self._base is None:
            self._base = seq - 1
        self._frames.append((seq, frame))
        self._bytes += len(frame)
        while self._bytes > MAX_BYTES or len(self._frames) > MAX_FRAMES:
            self._base, dropped = self._frames.popleft()
            self._bytes -= len(dropped)

    def after(self, seq: int) -> list[bytes] | None:
        """Return every event above a number, oldest first; None if some are missing or the number is unknown."""
        newest = self._frames[-1][0] if self._frames else self._base
        if self._base is None or newest is None or not self._base <= seq <= newest:
            return None
        return [frame for number, frame in self._frames if number > seq]
