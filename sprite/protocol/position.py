"""A reader's position in a sprite's durable events: resume point and duplicate detection. No I/O.

Durable events are numbered from 1 within an epoch. Numbers of two epochs do not compare.
"""

from __future__ import annotations


class Position:
    """Track the position. Pass each welcome, durable event number and state; the methods return what is new."""

    def __init__(self) -> None:
        #: Epoch of the sequence; None before the first welcome.
        self.epoch: str | None = None
        #: The newest event that was received, or that a state covers.
        self.last_seq = 0
        self._newest_seq = 0

    def welcome(self, epoch: str, newest_seq: int) -> bool:
        """Record the sender's epoch and newest event; return whether the known sequence continues.

        If it does not (another epoch, or one that was reset), continue from its newest event: a state replaces the
        earlier events.
        """
        goes_on = epoch == self.epoch and newest_seq >= self.last_seq
        if not goes_on:
            self.epoch, self.last_seq = epoch, newest_seq
        self._newest_seq = newest_seq
        return goes_on

    def advance(self, seq: int) -> bool:
        """Record a durable event; return whether it is new and not a duplicate."""
        is_new = seq > self.last_seq
        if is_new:
            self.last_seq = seq
        return is_new

    def skip(self) -> None:
        """Skip to the welcome's newest event, because a state covers it."""
        self.last_seq = max(self.last_seq, self._newest_seq)
