"""The agent's words as they come, a few at a time."""

from __future__ import annotations

import asyncio

from sprite.feed import Feed
from sprite.protocol.events import TextDelta

#: Streamed text is sent this often at the most: faster than anyone reads, slower than a fast model's words.
DELTA_SECONDS = 0.015


class TextStream:
    """Holds each piece of text for a moment, so that a fast model does not cost a frame for every word."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._held: TextDelta | None = None
        self._timer: asyncio.TimerHandle

    def add(self, delta: TextDelta) -> None:
        """Takes the next piece."""
        if self._held is not None and self._held.mission_id == delta.mission_id:
            self._held.text = f"{self._held.text}{delta.text}"
            return
        self.release()
        self._held = delta
        self._timer = asyncio.get_running_loop().call_later(DELTA_SECONDS, self.release)

    def release(self) -> None:
        """Sends the text that is held, if any: it is due, or something else follows it."""
        if self._held is not None:
            self._timer.cancel()
            self._feed.publish(self._held, durable=False)
            self._held = None
