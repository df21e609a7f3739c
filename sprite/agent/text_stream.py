"""The agent's streamed text, debounced."""

from __future__ import annotations

import asyncio

from sprite.feed import Feed
from sprite.protocol.events import TextDelta

#: Minimum interval of streamed text: faster than people read, slower than a fast model's tokens.
DELTA_SECONDS = 0.015


class TextStream:
    """Debounce streamed text, so that a fast model does not cost a frame per word."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._held: TextDelta | None = None
        self._timer: asyncio.TimerHandle

    def add(self, delta: TextDelta) -> None:
        """Add the next piece of text."""
        if self._held is not None and self._held.mission_id == delta.mission_id:
            self._held.text = f"{self._held.text}{delta.text}"
            return
        self.release()
        self._held = delta
        self._timer = asyncio.get_running_loop().call_later(DELTA_SECONDS, self.release)

    def release(self) -> None:
        """Send the held text, if any, because it is due or another event follows."""
        if self._held is not None:
            self._timer.cancel()
            self._feed.publish(self._held, durable=False)
            self._held = None
