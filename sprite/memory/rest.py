"""Idle detection for a conversation, so that its turns are curated before a whole batch waits.

A conversation is idle when no turn has ended for `seconds`. A VM that can sleep would sleep earlier, and the timer
would stop with it. Such a VM is kept awake, and a shorter period suffices once no client is connected. A conversation
with pauses then costs one call per idle period, and the VM is not kept awake forever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

#: Idle period on a machine that can sleep, after the last client left: longer than a page reload, short enough to keep
#: the machine awake cheaply.
LEFT_SECONDS = 30.0


class Rest:
    """Call `on_rest` once when a conversation is idle. The module explains `can_sleep` and `is_left`."""

    def __init__(
        self, seconds: float, on_rest: Callable[[], None], *, can_sleep: bool, is_left: Callable[[], bool]
    ) -> None:
        self._seconds = seconds
        self._on_rest = on_rest
        self._can_sleep = can_sleep
        self._is_left = is_left
        self._since = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_awaited(self) -> bool:
        """Return whether a machine that can sleep should stay awake for the idle flush."""
        return self._timer is not None

    def begin(self) -> None:
        """Start or restart the idle timer after a turn."""
        self.end()
        self._since = asyncio.get_running_loop().time()
        self._look_later()

    def end(self) -> None:
        """Stop the timer: the conversation goes on, or no work is left."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_later(self) -> None:
        loop = asyncio.get_running_loop()
        end = self._since + self._seconds
        # Poll for disconnected clients only where it matters; otherwise one check at the end is enough.
        self._timer = loop.call_at(min(loop.time() + LEFT_SECONDS, end) if self._can_sleep else end, self._look)

    def _look(self) -> None:
        has_rested = asyncio.get_running_loop().time() >= self._since + self._seconds
        if has_rested or (self._can_sleep and self._is_left()):
            self._timer = None
            self._on_rest()
        else:
            self._look_later()
