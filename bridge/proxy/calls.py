"""The table `calls`: one row for each model call, without its content, and the sums over them.

A row is `held` with the maximum cost of its call, then `settled` with the actual cost. Calls that a dead bridge
leaves held become `lost`: they count with the whole hold until they are settled after all. This module knows no
budgets.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from sprite.common.prices import Usage

if TYPE_CHECKING:
    from bridge.db.open import Database, Transaction


State = Literal["held", "settled", "lost"]
Outcome = Literal["complete", "refused", "client_gone", "cut", "timeout", "unreachable"]

DAY_SECONDS = 86400
_MAX_REQUEST_ID = 128

_COLUMNS = (
    "id, sprite, held_usd, spent_usd, state, at, model, outcome, status, request_id, input_tokens, output_tokens, "
    "cache_read_tokens, cache_write_tokens, cache_write_1h_tokens, web_searches, is_estimate, duration_ms"
)
_VALUES = ", ".join("?" * (_COLUMNS.count(",") + 1))
_INSERT = f"INSERT INTO calls ({_COLUMNS}) VALUES ({_VALUES}) ON CONFLICT (id)"  # noqa: S608 - of names in this file
#: Writes a row as it is now; the columns known at admission do not change.
UPSERT = f"""{_INSERT} DO UPDATE SET spent_usd = excluded.spent_usd, state = excluded.state, outcome = excluded.outcome,
    status = excluded.status, request_id = excluded.request_id, input_tokens = excluded.input_tokens,
    output_tokens = excluded.output_tokens, cache_read_tokens = excluded.cache_read_tokens,
    cache_write_tokens = excluded.cache_write_tokens, cache_write_1h_tokens = excluded.cache_write_1h_tokens,
    web_searches = excluded.web_searches, is_estimate = excluded.is_estimate, duration_ms = excluded.duration_ms
"""
#: Takes the id of a call, unless the id is taken.
TOMBSTONE = f"{_INSERT} DO NOTHING"
# A call in flight counts with its hold.
_SPEND = """
SELECT sprite, coalesce(sum(coalesce(spent_usd, held_usd)) FILTER (WHERE at >= ?), 0) AS today,
    coalesce(sum(coalesce(spent_usd, held_usd)) FILTER (WHERE at >= ?), 0) AS month,
    coalesce(sum(coalesce(spent_usd, held_usd)), 0) AS total,
    count(*) AS calls, count(*) FILTER (WHERE coalesce(spent_usd, held_usd) IS NULL) AS unpriced,
    coalesce(sum(spent_usd) FILTER (WHERE at >= ? AND is_estimate = 1 AND state <> 'held'), 0) AS estimated
FROM calls GROUP BY sprite ORDER BY sprite
"""
_ESTIMATED = """
SELECT sprite, sum(spent_usd) AS usd FROM calls
WHERE at >= ? AND is_estimate = 1 AND state <> 'held' AND spent_usd IS NOT NULL GROUP BY sprite
"""


@dataclass(slots=True)
class ModelCall:
    """The row of one call, changed while the call goes on; amounts are None where the model's price is not known.

    `at` is the time of admission in Unix seconds. `duration_ms` lasts until settlement.
    """

    sprite: str
    model: str
    held_usd: float | None
    at: float = 0.0
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    spent_usd: float | None = None
    state: State = "held"
    outcome: Outcome | None = None
    status: int | None = None
    request_id: str | None = None
    usage: Usage = field(default_factory=Usage)
    is_estimate: bool = True
    duration_ms: float | None = None

    def row(self) -> tuple[object, ...]:
        """Return the columns in the order of UPSERT."""
        return (*(self.id, self.sprite, self.held_usd, self.spent_usd, self.state, self.at, self.model), *self.ending())

    def ending(self) -> tuple[object, ...]:
        """Return the columns from `outcome` on, known when the call has ended."""
        usage, request_id = self.usage, self.request_id
        return (
            *(self.outcome, self.status, request_id and request_id[:_MAX_REQUEST_ID]),
            *(usage.input, usage.output, usage.cache_read, usage.cache_write, usage.cache_write_1h),
            *(usage.web_searches, int(self.is_estimate), self.duration_ms),
        )


@dataclass(frozen=True, slots=True)
class Spend:
    """Spending of a sprite in US dollars; `unpriced` of its `calls` have no known price and are in no sum.

    `estimated` is the part of `today` that the API did not report: the maximum cost of calls that were cut off.
    """

    sprite: str
    today: float
    month: float
    total: float
    calls: int
    unpriced: int
    estimated: float = 0.0


async def spend(database: Database, now: float | None = None) -> list[Spend]:
    """Return the spending by sprite, for the day and month of `now` (by default the database's clock).

    Calls in flight count with their holds. Raise DatabaseError.
    """

    def read(db: Transaction) -> list[Any]:
        at = db.execute("SELECT db_now() AS now").fetchone()["now"] if now is None else now
        return db.execute(_SPEND, (day_begins(at), month_begins(at), day_begins(at))).fetchall()

    names = [each.name for each in fields(Spend)]
    return [Spend(**{name: row[name] for name in names}) for row in await database.read(read)]


async def estimated_today(database: Database, now: float | None = None) -> dict[str, float]:
    """See LocalAccounts; with the day as it is at `now` (by default the database's clock). DatabaseError."""

    def read(db: Transaction) -> list[Any]:
        at = db.execute("SELECT db_now() AS now").fetchone()["now"] if now is None else now
        return db.execute(_ESTIMATED, (day_begins(at),)).fetchall()

    return {row["sprite"]: row["usd"] for row in await database.read(read)}


def month_begins(at: float) -> float:
    """Return the Unix time at which the UTC month of `at` began."""
    moment = datetime.fromtimestamp(at, UTC)
    return datetime(moment.year, moment.month, 1, tzinfo=UTC).timestamp()


def day_begins(at: float) -> float:
    """Return the Unix time at which the UTC day of `at` began."""
    return math.floor(at / DAY_SECONDS) * DAY_SECONDS


#: A user is warned when these shares of the day's budget are spent.
WARNED_AT = (0.5, 0.8)

_RAISE = """
INSERT INTO raised_limits VALUES (?, ?, ?)
ON CONFLICT (sprite, day) DO UPDATE SET usd = raised_limits.usd + excluded.usd
"""


async def raised_on(database: Database, day: int) -> Mapping[str, float]:
    """Return the raise of each sprite's budget on a day, in US dollars."""
    rows = await database.statement("SELECT sprite, usd FROM raised_limits WHERE day = ?", (day,))
    return {row["sprite"]: row["usd"] for row in rows}


async def raise_on(database: Database, sprite: str, day: int, usd: float) -> None:
    """Raise a sprite's budget for one day, and delete its raises of earlier days."""

    def write(tx: Transaction) -> None:
        tx.execute(_RAISE, (sprite, day, usd))
        tx.execute("DELETE FROM raised_limits WHERE sprite = ? AND day < ?", (sprite, day))

    await database.write(write)


class Warnings:
    """Call each of `listeners` with the sprite and a message when a share of its day's budget is spent.

    Each share is announced once per day and limit.
    """

    def __init__(self) -> None:
        self.listeners: list[Callable[[str, str], None]] = []
        self._told: dict[str, tuple[int, float, float]] = {}

    def spent(self, sprite: str, day: int, usd: float, limit: float | None) -> None:
        """Check the spending of a day, in US dollars, against `limit`; None means no limit."""
        if not limit:
            return
        part = max((part for part in WARNED_AT if usd >= part * limit), default=0.0)
        known_day, known_limit, known_part = self._told.get(sprite, (day, limit, 0.0))
        is_new = part > 0 and ((day, limit) != (known_day, known_limit) or part > known_part)
        self._told[sprite] = (day, limit, part)
        if is_new:
            words = f"At least {part:.0%} of the day's budget of ${limit:.2f} is spent (${usd:.2f} so far)."
            for listener in self.listeners:
                listener(sprite, words)
