"""Frames on their way to one reader, who may be slow: how much may wait, and what waits behind a replay. No I/O.

A reader that comes back is first sent what it missed. Live events that come in meanwhile are held back, and follow
the replay in order, without those that were part of it. A reader that lets too much pile up is cut off: it can resume,
so frames are never dropped one by one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class Outbox:
    """Feed it frames with `put` and `event`; `take` what to send, and say when that is `sent`.

    `limit` is in bytes. `on_overflow` is called once, when more than that would wait and the reader is cut off.
    """

    def __init__(self, limit: int, on_overflow: Callable[[], None]) -> None:
        self._limit = limit
        self._on_overflow = on_overflow
        self._queue: deque[bytes] = deque()
        self._unsent_bytes = 0
        self._taken_bytes = 0
        #: Live events and their numbers, None while they are not held back.
        self._held: list[tuple[int | None, bytes]] | None = None
        self._held_bytes = 0
        #: The reader has every event up to here by a replay.
        self._replayed_to = 0
        self._is_finishing = False
        #: Whether the reader was cut off: nothing is taken in any more, and nothing waits.
        self.is_cut = False

    @property
    def size(self) -> int:
        """Bytes that wait: queued, taken but not sent, and held back."""
        return self._unsent_bytes + self._held_bytes

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to take."""
        return not self._queue

    @property
    def is_finished(self) -> bool:
        """Whether there will never be anything to take again."""
        return self.is_cut or (self._is_finishing and not self._queue)

    def has_backlog(self, size: int) -> bool:
        """Whether a replay should pause: more than this many bytes wait, some of which only need to be sent."""
        return self._unsent_bytes > 0 and self.size > size

    # --- in ---

    def put(self, frame: bytes) -> None:
        """Queues a frame behind what is queued."""
        if not self.is_cut and not self._is_finishing:
            self._queue.append(frame)
            self._unsent_bytes += len(frame)
            self._bound()

    def event(self, frame: bytes, seq: int | None) -> None:
        """Queues an event of the live stream, or holds it back; `seq` is None for one that is not durable."""
        if self._held is None:
            if seq is None or seq > self._replayed_to:
                self.put(frame)
        elif not self.is_cut:
            self._held.append((seq, frame))
            self._held_bytes += len(frame)
            self._bound()

    def hold(self) -> None:
        """Holds back live events from here on; forgets those that were held back before."""
        self._held, self._held_bytes = [], 0
        self._replayed_to = 0

    def drop_transient(self) -> None:
        """Forgets held events that are not durable: they are older than the state that the reader is about to get."""
        if self._held is not None:
            self._held = [(seq, frame) for seq, frame in self._held if seq is not None]
            self._held_bytes = sum(len(frame) for _, frame in self._held)

    def release(self, after: int) -> None:
        """Queues what was held back and holds no more; the reader has durable events up to `after`, so drops those."""
        held = self._held or []
        self.discard()
        self._replayed_to = after
        for seq, frame in held:
            self.event(frame, seq)

    def begin_anew(self) -> None:
        """Another sequence follows: its numbers do not compare with those of the last replay."""
        self._replayed_to = 0

    def discard(self) -> None:
        """Forgets what was held back, and holds no more."""
        self._held, self._held_bytes = None, 0

    def finish(self) -> None:
        """Takes in nothing more; what is queued can still be sent."""
        self._is_finishing = True

    def cut(self) -> None:
        """Gives the reader up: forgets everything, takes in nothing more."""
        self.is_cut = True
        self._queue.clear()
        self._unsent_bytes = self._taken_bytes = 0
        self.discard()

    def _bound(self) -> None:
        if self.size > self._limit:
            self.cut()
            self._on_overflow()

    # --- out ---

    def take(self) -> bytes | None:
        """The oldest frame, None if there is none."""
        if not self._queue:
            return None
        frame = self._queue.popleft()
        self._taken_bytes += len(frame)
        return frame

    def take_all(self) -> bytes:
        """Every queued frame, joined."""
        data = b"".join(self._queue)
        self._queue.clear()
        self._taken_bytes += len(data)
        return data

    def sent(self) -> None:
        """What was taken is on its way: it does not wait any more."""
        self._unsent_bytes -= self._taken_bytes
        self._taken_bytes = 0
