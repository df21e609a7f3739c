"""How far a reader has heard the durable events of a sprite: where it resumes, and which events are new to it. No I/O.

Durable events are numbered from 1 within an epoch. Numbers of two epochs do not compare.
"""

from __future__ import annotations


class Position:
    """Give it each welcome, the number of each durable event, and each state; it says what is new."""

    def __init__(self) -> None:
        #: The sequence that is heard; None before the first welcome.
        self.epoch: str | None = None
        #: The newest event that was heard, or that a state stands for.
        self.last_seq = 0
        self._newest_seq = 0

    def welcome(self, epoch: str, newest_seq: int) -> bool:
        """Takes note of the sender's epoch and newest event; returns whether the known sequence goes on.

        A sequence that does not go on (another epoch, or one that was set back) is heard from its newest event on:
        a state comes in the place of what was before.
        """
        goes_on = epoch == self.epoch and newest_seq >= self.last_seq
        if not goes_on:
            self.epoch, self.last_seq = epoch, newest_seq
        self._newest_seq = newest_seq
        return goes_on

    def advance(self, seq: int) -> bool:
        """Takes note of a durable event; returns whether it is new, and not a duplicate."""
        is_new = seq > self.last_seq
        if is_new:
            self.last_seq = seq
        return is_new

    def skip(self) -> None:
        """A state comes in the place of every event up to the welcome's newest one."""
        self.last_seq = max(self.last_seq, self._newest_seq)
