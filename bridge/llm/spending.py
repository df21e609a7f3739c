"""Spending and holds of each sprite for bridges that share a Postgres: the table `spending` beside `calls`.

Each change is one statement, which locks the sprite's row of `spending` and waits for concurrent changes (READ
COMMITTED reads the row again afterwards). So sums include every hold of every bridge, and an interrupted statement
has done all or nothing. All times are the database's.

A call counts for the UTC day on which it began. If the clock was set back, the newest day seen stays current, so that
no budget is restored; `at` is then the beginning of that day.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bridge.llm.calls import DAY_SECONDS, TOMBSTONE

if TYPE_CHECKING:
    from bridge.database import Database
    from bridge.llm.accounts import Bounds
    from bridge.llm.budgets import Limits
    from bridge.llm.calls import ModelCall

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
    """Spending of a sprite now, in US dollars; `day` is in days since 1970.

    `raised` is added to that day's budget.
    """

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
