"""When a conversation rests, so that what waits of it is curated without waiting for a whole batch.

A conversation rests when no turn has ended for `seconds`. A VM that can sleep does so long before that, and no time
passes in it then: it is held awake meanwhile, and once nobody is connected any more a shorter rest is enough. So a
conversation with pauses costs a call per rest and not per pause, and a hold has an end. Owns one timer; what is done
at rest is not its business.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

#: On a machine that can sleep a conversation that nobody is connected to any more rests after so long: longer than a
#: reload of the page takes, short enough that the hold costs little.
LEFT_SECONDS = 30.0


class Rest:
    """Calls `on_rest` once, when a conversation has rested. `can_sleep` and `is_left` as the module says."""

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
        """Whether a machine that can sleep should stay awake, since something is to be done at rest."""
        return self._timer is not None

    def begin(self) -> None:
        """A turn has ended, and there will be something to do: the rest begins, or begins anew."""
        self.end()
        self._since = asyncio.get_running_loop().time()
        self._look_later()

    def end(self) -> None:
        """The conversation goes on, or nothing is left to do."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_later(self) -> None:
        loop = asyncio.get_running_loop()
        end = self._since + self._seconds
        # Whether people left is looked at now and then; where nothing follows from it, once at the end is enough.
        self._timer = loop.call_at(min(loop.time() + LEFT_SECONDS, end) if self._can_sleep else end, self._look)

    def _look(self) -> None:
        has_rested = asyncio.get_running_loop().time() >= self._since + self._seconds
        if has_rested or (self._can_sleep and self._is_left()):
            self._timer = None
            self._on_rest()
        else:
            self._look_later()
