"""Frames queued for one reader that may be slow, with a limit and a hold during a replay. No I/O.

A reader that reconnects first receives the missed events. Live events meanwhile are held and follow the replay in
order, without those that were part of it. A reader with too large a backlog is disconnected: it can resume, so
single frames are never dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class Outbox:
    """Queue frames with `put` and `event`; send what `take` returns, then call `sent`.

    `limit` is in bytes. `on_overflow` is called once, when the backlog would exceed it and the reader is cut off.
    """

    def __init__(self, limit: int, on_overflow: Callable[[], None]) -> None:
        self._limit = limit
        self._on_overflow = on_overflow
        self._queue: deque[bytes] = deque()
        self._unsent_bytes = 0
        self._taken_bytes = 0
        #: Held live events and their numbers, or None while they are not held.
        self._held: list[tuple[int | None, bytes]] | None = None
        self._held_bytes = 0
        #: The reader has every event up to this number from a replay.
        self._replayed_to = 0
        self._is_finishing = False
        #: Whether the reader was cut off: the queue is empty and accepts no more frames.
        self.is_cut = False

    @property
    def size(self) -> int:
        """Bytes of all frames that are not sent yet: queued, taken by the sender, or held."""
        return self._unsent_bytes + self._held_bytes

    @property
    def is_empty(self) -> bool:
        """Whether there is no frame to take."""
        return not self._queue

    @property
    def is_finished(self) -> bool:
        """Whether there will never be another frame to take."""
        return self.is_cut or (self._is_finishing and not self._queue)

    def has_backlog(self, size: int) -> bool:
        """Return whether a replay should pause: more than `size` bytes wait, and some of them can be sent now."""
        return self._unsent_bytes > 0 and self.size > size

    # --- in ---

    def put(self, frame: bytes) -> None:
        """Queue a frame behind the queued ones."""
        if not self.is_cut and not self._is_finishing:
            self._queue.append(frame)
            self._unsent_bytes += len(frame)
            self._bound()

    def event(self, frame: bytes, seq: int | None) -> None:
        """Queue or hold a live event; `seq` is None if it is not durable."""
        if self._held is None:
            if seq is None or seq > self._replayed_to:
                self.put(frame)
        elif not self.is_cut:
            self._held.append((seq, frame))
            self._held_bytes += len(frame)
            self._bound()

    def hold(self) -> None:
        """Hold live events from here on, until `release` or `discard`; drop any that were held before."""
        self._held, self._held_bytes = [], 0
        self._replayed_to = 0

    def drop_transient(self) -> None:
        """Drop the held events that are not durable: the state that the reader will receive is newer."""
        if self._held is not None:
            self._held = [(seq, frame) for seq, frame in self._held if seq is not None]
            self._held_bytes = sum(len(frame) for _, frame in self._held)

    def release(self, after: int) -> None:
        """Stop holding, and queue the held events except durable ones up to number `after`, which the reader has."""
        held = self._held or []
        self.discard()
        self._replayed_to = after
        for seq, frame in held:
            self.event(frame, seq)

    def begin_anew(self) -> None:
        """Begin a new sequence of event numbers: stop comparing numbers with those of the last replay."""
        self._replayed_to = 0

    def discard(self) -> None:
        """Stop holding live events, and drop the held ones."""
        self._held, self._held_bytes = None, 0

    def finish(self) -> None:
        """Accept no more frames; queued ones can still be sent."""
        self._is_finishing = True

    def cut(self) -> None:
        """Cut the reader off: drop all frames and accept no more."""
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
        """Remove and return the oldest queued frame, or None if none is queued."""
        if not self._queue:
            return None
        frame = self._queue.popleft()
        self._taken_bytes += len(frame)
        return frame

    def take_all(self) -> bytes:
        """Remove and return all queued frames, joined."""
        data = b"".join(self._queue)
        self._queue.clear()
        self._taken_bytes += len(data)
        return data

    def sent(self) -> None:
        """Record that the sender has sent the frames that it took."""
        self._unsent_bytes -= self._taken_bytes
        self._taken_bytes = 0


class Position:
    """Track how far a client has received the sprite's durable events: `epoch` and `last_seq`.

    Call its methods for each welcome (`auth_ok`), event and state.
    """

    def __init__(self) -> None:
        #: Epoch of the sequence, or None before the first welcome.
        self.epoch: str | None = None
        #: The newest event that was received, or that a state covers.
        self.last_seq = 0
        self._newest_seq = 0

    def welcome(self, epoch: str, newest_seq: int) -> bool:
        """Record the epoch and newest event of a welcome; return whether the client's sequence continues.

        If it does not (another epoch, or one that was reset), the position becomes the welcome's newest event,
        because a state then replaces the earlier events.
        """
        goes_on = epoch == self.epoch and newest_seq >= self.last_seq
        if not goes_on:
            self.epoch, self.last_seq = epoch, newest_seq
        self._newest_seq = newest_seq
        return goes_on

    def advance(self, seq: int) -> bool:
        """Record that a durable event was received; return False for a duplicate."""
        is_new = seq > self.last_seq
        if is_new:
            self.last_seq = seq
        return is_new

    def skip(self) -> None:
        """Move the position to the last welcome's newest event, because a received state covers all until then."""
        self.last_seq = max(self.last_seq, self._newest_seq)
