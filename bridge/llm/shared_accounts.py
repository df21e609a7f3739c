"""Accounts for bridges that share a Postgres: the database admits calls and keeps the sums.

One statement admits a call before it is forwarded. A background task writes the end of the call, and retries until
that succeeds. Therefore:

- Calls are refused while the database is unavailable, so no call is unpaid.
- Calls that end meanwhile are settled when it is back; until then their holds remain.
- Holds of a killed bridge count in full after 15 minutes, set by the first bridge that finds them. A live bridge renews
  the holds of its long calls. A bridge that was only disconnected settles calls that were given up as lost.
- A call whose admission was interrupted, so that its hold is uncertain, ends up holding nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import AsyncExitStack, suppress
from typing import TYPE_CHECKING, Literal, Self

from bridge.database import DatabaseError
from bridge.llm.accounts import LocalAccounts, UnavailableError
from bridge.llm.budgets import BudgetError, refusal
from bridge.llm.calls import ModelCall, Spend, estimated_today, spend
from bridge.llm.raised_limits import Warnings, raise_on
from sprite.common.tasks import owned_task

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from bridge.database import Database
    from bridge.llm.accounts import Bounds, LocalAccounts
    from bridge.llm.budgets import Limits
    from bridge.llm.spending import Spending, Standing

log = logging.getLogger(__name__)

#: Interval for renewing own holds and finding abandoned ones.
BEAT_SECONDS = 60.0
#: Poll interval of a waiting call; calls of this bridge wake it when they settle.
_LOOK_SECONDS = 0.5
_RETRY_SECONDS = 1.0
#: Settlements at once, so that admissions find the database's other connections free.
_AT_ONCE = 4
_PATIENCE_SECONDS = 10.0
#: The SQL standard's code for a transaction with an unknown outcome.
_PERHAPS_WRITTEN = "08007"
_AWAY = "The bridge's database does not answer, and no model is called before what it costs can be written down."


class SharedAccounts:
    """`async with SharedAccounts(...) as accounts:`; leaving it writes the pending settlements. See LocalAccounts.

    `on_used_up` is called with the sprite and the message whenever a call is refused because the budget is used up.
    If the writer task dies, `on_death` is called, and leaving raises TaskDiedError.
    """

    def __init__(
        self,
        database: Database,
        spending: Spending,
        on_used_up: Callable[[str, str], None] = lambda _sprite, _words: None,
        *,
        on_death: Callable[[], None] = lambda: None,
        beat_seconds: float = BEAT_SECONDS,
    ) -> None:
        self._database = database
        self._warnings = Warnings()
        self._spending = spending
        self._on_used_up = on_used_up
        self._on_death = on_death
        self._beat_seconds = beat_seconds
        self._open: dict[str, float] = {}  # time of admission, by call id
        self._ended: dict[str, ModelCall] = {}
        self._unsure: set[str] = set()
        self._noted = asyncio.Event()
        self._settled: dict[str, asyncio.Event] = {}  # by sprite, where a call waits
        self._settling = asyncio.Lock()
        self._failing_since: float | None = None
        self._writer: asyncio.Task[None] | None = None
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        self._writer = await self._stack.enter_async_context(
            owned_task(self._write_on(), name="ledger", on_death=self._on_death)
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._stack.aclose()
        finally:
            await self.flush()
            if self._ended:
                log.error("model calls could not be settled: they stay held", extra={"count": len(self._ended)})

    @property
    def limits(self) -> Limits:
        """See LocalAccounts."""
        return self._spending.limits

    @property
    def warnings(self) -> Warnings:
        """See LocalAccounts."""
        return self._warnings

    @property
    def is_behind(self) -> bool:
        """See LocalAccounts."""
        if self._writer is not None and self._writer.done():
            return True
        return self._failing_since is not None and time.monotonic() - self._failing_since >= _PATIENCE_SECONDS

    async def open(self, sprite: str, model: str, bounds: Bounds | None, patience: float) -> ModelCall:
        """See LocalAccounts."""
        if self.is_behind:
            raise UnavailableError(_AWAY)
        call = ModelCall(sprite, model, None if bounds is None else bounds.most)
        until = asyncio.get_running_loop().time() + patience
        try:
            while (at := await self._let_in(call, bounds)) is None:
                await self._wait(call.sprite, bounds, until)
        except DatabaseError as error:
            raise UnavailableError(_AWAY) from error
        call.at = at
        self._open[call.id] = time.monotonic()
        return call

    def settle(self, call: ModelCall) -> None:
        """See LocalAccounts."""
        self._open.pop(call.id, None)
        call.state = "settled"
        self._ended[call.id] = call
        self._noted.set()

    async def raise_today(self, sprite: str) -> float | None:
        """See LocalAccounts."""
        if (daily := self.limits.daily_usd) is None:
            return None
        await self._spending.begin(sprite)
        standing = await self._spending.standing(sprite)
        assert standing is not None  # noqa: S101 - its row was made just now
        await raise_on(self._database, sprite, standing.day, daily)
        return 2 * daily + standing.raised

    async def spend(self) -> list[Spend]:
        """See LocalAccounts."""
        await self.flush()
        return await spend(self._database)

    async def spent_today(self) -> Mapping[str, float]:
        """See LocalAccounts. Raise UnavailableError."""
        try:
            return await self._spending.today()
        except DatabaseError as error:
            raise UnavailableError(_AWAY) from error

    async def estimated_today(self) -> Mapping[str, float]:
        """See LocalAccounts."""
        await self.flush()
        try:
            return await estimated_today(self._database)
        except DatabaseError as error:
            raise UnavailableError(_AWAY) from error

    async def flush(self) -> None:
        """Settle the calls that have ended, as far as the database allows."""
        async with self._settling:
            calls = tuple(self._ended.values())
            is_failing = False
            for begin in range(0, len(calls), _AT_ONCE):
                if is_failing:
                    return
                try:
                    async with asyncio.TaskGroup() as group:
                        for call in calls[begin : begin + _AT_ONCE]:
                            group.create_task(self._write(call), name="settlement")
                except* DatabaseError as errors:
                    self._failed(errors)
                    is_failing = True

    async def _write(self, call: ModelCall) -> None:
        if call.id in self._unsure:
            await self._spending.bar(call)
        await self._spending.settle(call)
        if call.spent_usd and self.limits.daily_usd and (standing := await self._spending.standing(call.sprite)):
            limit = _raised(self.limits.daily_usd, standing)
            self._warnings.spent(call.sprite, standing.day, standing.day_spent, limit)
        self._ended.pop(call.id, None)
        self._unsure.discard(call.id)
        if self._failing_since is not None:
            self._failing_since = None
            log.warning("the ledger is written again")
        if (settled := self._settled.pop(call.sprite, None)) is not None:
            settled.set()

    # --- letting in ---

    async def _let_in(self, call: ModelCall, bounds: Bounds | None) -> float | None:
        try:
            return await self._spending.reserve(call, bounds)
        except DatabaseError as error:
            if error.code == _PERHAPS_WRITTEN:
                self._give_back(call)
            raise
        except asyncio.CancelledError:
            # A statement that has begun runs to its end in any case.
            self._give_back(call)
            raise

    def _give_back(self, call: ModelCall) -> None:
        """Settle a call that was never made, so that it holds nothing."""
        call.spent_usd = None if call.held_usd is None else 0.0
        call.outcome, call.is_estimate, call.at = "refused", False, time.time()
        self._unsure.add(call.id)
        self.settle(call)

    async def _wait(self, sprite: str, bounds: Bounds | None, until: float) -> None:
        """Return when another try may succeed. Raise BudgetError."""
        standing = await self._spending.standing(sprite)
        if standing is None:
            await self._spending.begin(sprite)
            return
        error = None if bounds is None else self._refusal(standing, bounds.least)
        if error is None:
            # Another call was settled between the two looks.
            return
        if error.retry_after is None:
            self._on_used_up(sprite, str(error))
            raise error
        now = asyncio.get_running_loop().time()
        if now >= until:
            raise error
        with suppress(TimeoutError):
            async with asyncio.timeout_at(min(until, now + _LOOK_SECONDS)):
                await self._settled.setdefault(sprite, asyncio.Event()).wait()

    def _refusal(self, standing: Standing, least: float) -> BudgetError | None:
        limits = self.limits
        windows: tuple[tuple[Literal["day", "month"], float | None, float, float], ...] = (
            ("day", _raised(limits.daily_usd, standing), standing.day_spent, standing.day_held),
            ("month", limits.monthly_usd, standing.month_spent, standing.month_held),
        )
        for name, limit, spent, held in windows:
            if limit is not None and (spent + held >= limit or spent + held > limit - least):
                return refusal(name, limit, spent, least, standing.day)
        return None

    # --- the task ---

    async def _write_on(self) -> None:
        beat_at = 0.0
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(max(beat_at - time.monotonic(), 0.0)):
                    await self._noted.wait()
            self._noted.clear()
            await self.flush()
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
            for call_id, since in tuple(self._open.items()):
                if since <= old:
                    await self._spending.renew(call_id)
            if lost := await self._spending.lose():
                log.warning("model calls of a bridge that is gone count with all they held", extra={"count": lost})
        except DatabaseError as error:
            # The next beat is soon enough: a hold lasts for many of them.
            log.warning("holds cannot be renewed (%s)", error.code)

    def _failed(self, errors: ExceptionGroup[DatabaseError]) -> None:
        if self._failing_since is None:
            self._failing_since = time.monotonic()
            codes = ", ".join(sorted({error.code for error in errors.exceptions if isinstance(error, DatabaseError)}))
            log.error("the ledger cannot be written (%s)", codes, extra={"count": len(self._ended)})


Accounts = LocalAccounts | SharedAccounts


def _raised(limit: float | None, standing: Standing) -> float | None:
    return None if limit is None else limit + standing.raised
