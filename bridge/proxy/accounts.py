"""Accounts for model calls: a call is opened before it is forwarded, and settled when it ends.

A background task writes the ends, and retries. While the database is away, no call is admitted, and ended calls keep
their holds. Holds of a killed bridge count in full from its next start or, where bridges share the database, after 15
minutes; a bridge that was only disconnected settles calls that were given up as lost.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack, suppress

from bridge.db.database import Database, DatabaseError
from bridge.proxy import calls
from bridge.proxy.budgets import Bounds, BudgetError, Limits
from bridge.proxy.calls import HELD_SECONDS, ModelCall, Spend, Warnings
from sprite.common.tasks import Service, owned_task

log = logging.getLogger(__name__)

#: Interval for renewing own holds and finding abandoned ones.
BEAT_SECONDS = 60.0
#: Poll interval of a waiting call; calls of this bridge wake it when they settle.
_LOOK_SECONDS = 0.5
_RETRY_SECONDS = 1.0
_PATIENCE_SECONDS = 10.0
#: The SQL standard's code for a transaction with an unknown outcome.
_PERHAPS_WRITTEN = "08007"
_AWAY = "The bridge's database does not answer. No model is called while its cost cannot be recorded."


class UnavailableError(Exception):
    """Spending cannot be recorded at the moment; a later call may succeed. The message is written for users."""


class Accounts(Service):
    """Admit and settle model calls: `async with Accounts(...) as accounts:`; leaving it writes the pending settlements.

    `on_used_up` is called whenever the budget is used up: with the sprite, the message, and whether the person can
    raise the limit for today. `on_death`: see `owned_task`. `shared`: other bridges may use the database.
    """

    def __init__(
        self,
        database: Database,
        limits: Limits,
        on_used_up: Callable[[str, str, bool], None] = lambda _sprite, _words, _can_raise: None,
        *,
        shared: bool = False,
        on_death: Callable[[], None] = lambda: None,
        beat_seconds: float = BEAT_SECONDS,
    ) -> None:
        self._database = database
        self.limits = limits
        self.warnings = Warnings()
        self._on_used_up = on_used_up
        self._shared = shared
        self._on_death = on_death
        self._beat_seconds = beat_seconds
        self._admitted: dict[str, float] = {}  # time of admission, by call id
        self._ended: dict[str, ModelCall] = {}
        self._unsure: set[str] = set()
        self._noted = asyncio.Event()
        self._settled: dict[str, asyncio.Event] = {}  # by sprite, where a call waits
        self._settling = asyncio.Lock()
        self._failing_since: float | None = None
        self._writer: asyncio.Task[None] | None = None

    async def _open(self, stack: AsyncExitStack) -> None:
        if not self._shared:
            # No other bridge has calls in flight.
            await calls.lose(self._database, HELD_SECONDS)
        stack.push_async_callback(self._close)
        writing = owned_task(self._write_on(), name="ledger", on_death=self._on_death)
        self._writer = await stack.enter_async_context(writing)

    async def _close(self) -> None:
        await self.flush()
        if count := len(self._ended):
            log.error("model calls could not be settled: their budget stays reserved", extra={"count": count})

    @property
    def is_behind(self) -> bool:
        """Return whether the writer has stopped, or writes have failed for so long that no more calls are admitted."""
        if self._writer is not None and self._writer.done():
            return True
        return self._failing_since is not None and time.monotonic() - self._failing_since >= _PATIENCE_SECONDS

    async def open(self, sprite: str, model: str, bounds: Bounds | None, patience: float) -> ModelCall:
        """Admit a call and hold its maximum cost; `bounds` is None for a model without a known price.

        Where other calls hold the remaining budget, wait for them for up to `patience` seconds. Raise BudgetError or
        UnavailableError if the call is refused. A refused or cancelled call holds nothing.
        """
        if self.is_behind:
            raise UnavailableError(_AWAY)
        call = ModelCall(sprite, model, None if bounds is None else bounds.most)
        until = asyncio.get_running_loop().time() + patience
        try:
            while (refusal := await self._reserve(call, bounds)) is not None:
                await self._wait(sprite, refusal, until)
        except DatabaseError as error:
            raise UnavailableError(_AWAY) from error
        self._admitted[call.id] = time.monotonic()
        return call

    def settle(self, call: ModelCall) -> None:
        """Replace a call's reserved budget by its `spent_usd`. Its row is written later, in the background."""
        self._admitted.pop(call.id, None)
        call.state = "settled"
        self._ended[call.id] = call
        self._noted.set()

    async def raise_today(self, sprite: str) -> float | None:
        """Let a sprite spend one more daily budget today; return its new limit, None without one. DatabaseError."""
        if self.limits.daily_usd is None:
            return None
        return self.limits.today(await calls.raise_today(self._database, sprite, self.limits.daily_usd))

    async def spend(self) -> list[Spend]:
        """See `calls.spend`."""
        await self.flush()
        return await calls.spend(self._database)

    async def spent_today(self, *, only_estimates: bool = False) -> Mapping[str, float]:
        """See `calls.spent_today`. Raise UnavailableError."""
        await self.flush()
        try:
            return await calls.spent_today(self._database, only_estimates=only_estimates)
        except DatabaseError as error:
            raise UnavailableError(_AWAY) from error

    async def flush(self) -> None:
        """Write the costs of the model calls that have ended, as far as the database allows."""
        async with self._settling:
            for call in tuple(self._ended.values()):
                try:
                    await self._write(call)
                except DatabaseError as error:
                    if self._failing_since is None:
                        self._failing_since = time.monotonic()
                        # Its words may hold a path.
                        log.error("the ledger cannot be written (%s)", error.code, extra={"count": len(self._ended)})  # noqa: TRY400
                    return

    async def _write(self, call: ModelCall) -> None:
        if call.id in self._unsure:
            await calls.bar(self._database, call)
        standing = await calls.settle(self._database, call)
        self.warnings.spent(call.sprite, standing.day, standing.day_spent, self.limits.today(standing))
        self._ended.pop(call.id, None)
        self._unsure.discard(call.id)
        if self._failing_since is not None:
            self._failing_since = None
            log.warning("the ledger is written again")
        if (settled := self._settled.pop(call.sprite, None)) is not None:
            settled.set()

    async def _reserve(self, call: ModelCall, bounds: Bounds | None) -> BudgetError | None:
        try:
            return await calls.reserve(self._database, call, bounds, self.limits)
        except DatabaseError as error:
            if error.code == _PERHAPS_WRITTEN:
                self._give_back(call)
            raise
        except asyncio.CancelledError:
            # A transaction that has begun runs to its end in any case.
            self._give_back(call)
            raise

    def _give_back(self, call: ModelCall) -> None:
        """Settle a model call that was never made, so that it holds none of the budget."""
        call.spent_usd = None if call.held_usd is None else 0.0
        call.outcome, call.is_estimate, call.at = "refused", False, time.time()
        self._unsure.add(call.id)
        self.settle(call)

    async def _wait(self, sprite: str, refusal: BudgetError, until: float) -> None:
        """Wait until another attempt to reserve budget may succeed. Raise the refusal if none will."""
        if refusal.retry_after is None:
            self._on_used_up(sprite, str(refusal), refusal.can_raise)
            raise refusal
        now = asyncio.get_running_loop().time()
        if now >= until:
            raise refusal
        with suppress(TimeoutError):
            async with asyncio.timeout_at(min(until, now + _LOOK_SECONDS)):
                await self._settled.setdefault(sprite, asyncio.Event()).wait()

    async def _write_on(self) -> None:
        beat_at = 0.0
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(max(beat_at - time.monotonic(), 0.0)):
                    await self._noted.wait()
            self._noted.clear()
            await self.flush()
            await self._database.sync()
            if time.monotonic() >= beat_at:
                await self._beat()
                beat_at = time.monotonic() + self._beat_seconds
            if self._ended:
                self._noted.set()
                if self._failing_since is not None:
                    await asyncio.sleep(_RETRY_SECONDS)

    async def _beat(self) -> None:
        old = time.monotonic() - self._beat_seconds
        try:
            for call_id, since in tuple(self._admitted.items()):
                if since <= old:
                    await calls.renew(self._database, call_id)
            if lost := await calls.lose(self._database):
                words = "model calls of a bridge that is gone are counted at their maximum cost"
                log.warning(words, extra={"count": lost})
        except DatabaseError as error:
            # The next beat is soon enough: a hold lasts for many of them.
            log.warning("holds cannot be renewed (%s)", error.code)
