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
import math
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Self

from bridge.db.open import DatabaseError
from bridge.proxy.accounts import LocalAccounts, UnavailableError
from bridge.proxy.budgets import BudgetError, refusal
from bridge.proxy.calls import DAY_SECONDS, TOMBSTONE, ModelCall, Spend, Warnings, estimated_today, raise_on, spend
from sprite.common.tasks import owned_task

if TYPE_CHECKING:
    from collections.abc import Callable

    from bridge.db.open import Database
    from bridge.proxy.accounts import Bounds
    from bridge.proxy.budgets import Limits


#: Lifetime of a hold that is not renewed: its bridge has died or lost the database.
HELD_SECONDS = 900
_LOST_AT_ONCE = 500


def _day(at: str) -> str:
    return f"CAST(floor({at} / {DAY_SECONDS}) AS BIGINT)"


def _month(at: str) -> str:
    return f"CAST(to_char(to_timestamp({at}) AT TIME ZONE 'UTC', 'YYYYMM') AS BIGINT)"


def _raised(sprite: str) -> str:
    """Return the SQL for the raise of a sprite's budget today."""
    found = f"SELECT usd FROM raised_limits AS raise WHERE raise.sprite = {sprite} AND raise.day = {_day('db_now()')}"  # noqa: S608 - of names in this file
    return f"coalesce(({found}), 0)"


_NOW = f"db_now() AS now, {_day('db_now()')} AS day, {_month('db_now()')} AS month"
_RESERVE = f"""
WITH asked AS (
    SELECT CAST(? AS TEXT) AS id, CAST(? AS TEXT) AS sprite, CAST(? AS TEXT) AS model,
        CAST(? AS DOUBLE PRECISION) AS held_usd, CAST(? AS DOUBLE PRECISION) AS held,
        CAST(? AS DOUBLE PRECISION) AS least, CAST(? AS DOUBLE PRECISION) + {_raised("CAST(? AS TEXT)")} AS daily,
        CAST(? AS DOUBLE PRECISION) AS monthly, {_NOW}
), admitted AS (
    UPDATE spending AS kept SET
        day = greatest(kept.day, asked.day),
        day_held = CASE WHEN asked.day > kept.day THEN 0 ELSE kept.day_held END + asked.held,
        day_spent = CASE WHEN asked.day > kept.day THEN 0 ELSE kept.day_spent END,
        month = greatest(kept.month, asked.month),
        month_held = CASE WHEN asked.month > kept.month THEN 0 ELSE kept.month_held END + asked.held,
        month_spent = CASE WHEN asked.month > kept.month THEN 0 ELSE kept.month_spent END
    FROM asked
    WHERE kept.sprite = asked.sprite AND (asked.held = 0 OR (
        CASE WHEN asked.day > kept.day THEN 0 ELSE kept.day_held + kept.day_spent END < asked.daily
        AND CASE WHEN asked.day > kept.day THEN 0 ELSE kept.day_held + kept.day_spent END <= asked.daily - asked.least
        AND CASE WHEN asked.month > kept.month THEN 0 ELSE kept.month_held + kept.month_spent END < asked.monthly
        AND CASE WHEN asked.month > kept.month THEN 0 ELSE kept.month_held + kept.month_spent END
            <= asked.monthly - asked.least
    ))
    RETURNING kept.day
)
INSERT INTO calls (id, sprite, held_usd, state, at, model, input_tokens, output_tokens, cache_read_tokens,
    cache_write_tokens, cache_write_1h_tokens, web_searches, is_estimate, held_until)
SELECT asked.id, asked.sprite, asked.held_usd, 'held', greatest(asked.now, admitted.day * {DAY_SECONDS}), asked.model,
    0, 0, 0, 0, 0, 0, 1, asked.now + {HELD_SECONDS}
FROM asked, admitted
RETURNING at
"""  # noqa: S608 - of names and numbers in this file
#: Creates a missing row. Earlier calls in `calls` come from another database.
_BEGIN = f"""
INSERT INTO spending
SELECT asked.sprite, asked.day,
    coalesce(sum(held_usd) FILTER (WHERE state = 'held' AND {_day("at")} = asked.day), 0),
    coalesce(sum(spent_usd) FILTER (WHERE state <> 'held' AND {_day("at")} = asked.day), 0), asked.month,
    coalesce(sum(held_usd) FILTER (WHERE state = 'held'), 0),
    coalesce(sum(spent_usd) FILTER (WHERE state <> 'held'), 0)
FROM (SELECT CAST(? AS TEXT) AS sprite, {_NOW}) AS asked LEFT JOIN calls
    ON calls.sprite = asked.sprite AND at >= asked.now - 31 * {DAY_SECONDS} AND {_month("at")} = asked.month
GROUP BY asked.sprite, asked.day, asked.month
ON CONFLICT (sprite) DO NOTHING
"""  # noqa: S608 - of names and numbers in this file
_END = f"""
WITH was AS (
    SELECT id, sprite, state, coalesce(held_usd, 0) AS held, coalesce(spent_usd, 0) AS counted,
        {_day("at")} AS day, {_month("at")} AS month
    FROM calls WHERE id = ? AND {{which}} FOR UPDATE
), ended AS (
    UPDATE calls SET {{columns}} FROM was WHERE calls.id = was.id
    RETURNING was.sprite, was.day, was.month, CASE was.state WHEN 'held' THEN was.held ELSE 0 END AS freed,
        coalesce(calls.spent_usd, 0) - was.counted AS more
)
UPDATE spending AS kept SET
    day_held = CASE WHEN kept.day = ended.day THEN greatest(kept.day_held - freed, 0) ELSE kept.day_held END,
    day_spent = CASE WHEN kept.day = ended.day THEN kept.day_spent + more ELSE kept.day_spent END,
    month_held = CASE WHEN kept.month = ended.month THEN greatest(kept.month_held - freed, 0) ELSE kept.month_held END,
    month_spent = CASE WHEN kept.month = ended.month THEN kept.month_spent + more ELSE kept.month_spent END
FROM ended WHERE kept.sprite = ended.sprite
RETURNING kept.sprite
"""  # noqa: S608 - of names and numbers in this file
#: Also settles a call that was given up as lost: its actual cost is known after all.
_SETTLE = _END.format(
    which="state <> 'settled'",
    columns="state = 'settled', spent_usd = ?, outcome = ?, status = ?, request_id = ?, input_tokens = ?, "
    "output_tokens = ?, cache_read_tokens = ?, cache_write_tokens = ?, cache_write_1h_tokens = ?, web_searches = ?, "
    "is_estimate = ?, duration_ms = ?",
)
_IS_LEFT = f"state = 'held' AND coalesce(held_until, at + {HELD_SECONDS}) < db_now()"
_LOSE = _END.format(which=_IS_LEFT, columns="state = 'lost', spent_usd = held_usd")
_LEFT = f"SELECT id FROM calls WHERE {_IS_LEFT} LIMIT {_LOST_AT_ONCE}"  # noqa: S608 - of names in this file
_RENEW = f"UPDATE calls SET held_until = db_now() + {HELD_SECONDS} WHERE id = ? AND state = 'held'"  # noqa: S608
_LOOK = f"""
SELECT kept.*, asked.day AS today, asked.month AS this_month, {_raised("kept.sprite")} AS raised
FROM spending AS kept, (SELECT {_NOW}) AS asked
"""  # noqa: S608 - of names in this file


@dataclass(frozen=True, slots=True)
class Standing:
    """Spending of a sprite now, in US dollars; `day` is in days since 1970. `raised` is added to that day's budget."""

    day: int
    raised: float
    day_spent: float
    day_held: float
    month_spent: float
    month_held: float


class Spending:
    """Sums of all sprites. Every method may raise DatabaseError."""

    def __init__(self, database: Database, limits: Limits) -> None:
        self.limits = limits
        self._database = database

    async def reserve(self, call: ModelCall, bounds: Bounds | None) -> float | None:
        """Hold the cost of a call and write its row if its minimum cost is left.

        Return the time of admission, or None if the call is refused. Free calls and calls without a known price are
        always admitted.
        """
        daily, monthly = (
            math.inf if limit is None else limit for limit in (self.limits.daily_usd, self.limits.monthly_usd)
        )
        held = (0.0, 0.0) if bounds is None else (bounds.most, bounds.least)
        parameters = (call.id, call.sprite, call.model, call.held_usd, *held, daily, call.sprite, monthly)
        rows = await self._database.statement(_RESERVE, parameters)
        return rows[0]["at"] if rows else None

    async def settle(self, call: ModelCall) -> None:
        """Replace the hold of a call by its actual cost. Repeating it changes nothing."""
        await self._database.statement(_SETTLE, (call.id, call.spent_usd, *call.ending()))

    async def bar(self, call: ModelCall) -> None:
        """Resolve an interrupted `reserve` that may still run: it is either done or cannot happen any more.

        Whichever row takes the id first wins.
        """
        await self._database.statement(TOMBSTONE, call.row())

    async def renew(self, call_id: str) -> None:
        """Renew the hold of a call."""
        await self._database.statement(_RENEW, (call_id,))

    async def lose(self) -> int:
        """Count calls that were not renewed with their whole hold; return their number."""
        left = await self._database.statement(_LEFT)
        # One by one, so that two bridges that do it at once cannot deadlock.
        return sum([len(await self._database.statement(_LOSE, (row["id"],))) for row in left])

    async def standing(self, sprite: str) -> Standing | None:
        """Return the spending of a sprite; None if it has no row yet."""
        rows = await self._database.statement(f"{_LOOK} WHERE kept.sprite = ?", (sprite,))
        return _standing(rows[0]) if rows else None

    async def begin(self, sprite: str) -> None:
        """Create the row of a sprite, if it is missing."""
        await self._database.statement(_BEGIN, (sprite,))

    async def today(self) -> Mapping[str, float]:
        """Return the US dollars spent since the UTC day began, by sprite, without calls in flight."""
        rows = await self._database.statement(f"{_LOOK} WHERE kept.day >= asked.day")
        return {row["sprite"]: row["day_spent"] for row in rows}


def _standing(row: Mapping[str, Any]) -> Standing:
    """Return a row's sums, reset where the day or month has passed since it was written."""
    today, month = row["today"] <= row["day"], row["this_month"] <= row["month"]
    return Standing(
        day=max(row["today"], row["day"]),
        raised=row["raised"],
        day_spent=row["day_spent"] if today else 0.0,
        day_held=row["day_held"] if today else 0.0,
        month_spent=row["month_spent"] if month else 0.0,
        month_held=row["month_held"] if month else 0.0,
    )


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
        self.limits = spending.limits
        self.warnings = Warnings()
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

    async def __aexit__(self, *_error: object) -> None:
        try:
            await self._stack.aclose()
        finally:
            await self.flush()
            if self._ended:
                log.error("model calls could not be settled: they stay held", extra={"count": len(self._ended)})

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
            limit = _raised_limit(self.limits.daily_usd, standing)
            self.warnings.spent(call.sprite, standing.day, standing.day_spent, limit)
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
            ("day", _raised_limit(limits.daily_usd, standing), standing.day_spent, standing.day_held),
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


def _raised_limit(limit: float | None, standing: Standing) -> float | None:
    return None if limit is None else limit + standing.raised
