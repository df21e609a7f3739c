"""The table `calls`: one row for each model call, without its content, and the sums over them.

A row is `held` with the maximum cost of its call, then `settled` with the actual cost. Calls that a dead bridge
leaves held become `lost`: they count with the whole hold until they are settled after all.
"""

import math
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from bridge.db.database import Database, Transaction
from bridge.proxy.budgets import DAY_SECONDS, Bounds, BudgetError, Limits, Standing
from sprite.common.prices import Usage

State = Literal["held", "settled", "lost"]
Outcome = Literal["complete", "refused", "client_gone", "cut", "timeout", "unreachable"]

_MAX_REQUEST_ID = 128

_COLUMNS = (
    "id, sprite, held_usd, spent_usd, state, at, model, outcome, status, request_id, input_tokens, output_tokens, "
    "cache_read_tokens, cache_write_tokens, cache_write_1h_tokens, web_searches, is_estimate, duration_ms"
)
_VALUES = ", ".join("?" * (_COLUMNS.count(",") + 1))
_INSERT = f"INSERT INTO calls ({_COLUMNS}) VALUES ({_VALUES}) ON CONFLICT (id)"  # noqa: S608 - of names in this file
#: Takes the id of a call, unless the id is taken.
_TOMBSTONE = f"{_INSERT} DO NOTHING"
#: Lifetime of a hold that is not renewed: its bridge has died or lost the database.
HELD_SECONDS = 900
_HOLD = f"INSERT INTO calls ({_COLUMNS}, held_until) VALUES ({_VALUES}, db_now() + {HELD_SECONDS})"  # noqa: S608 - as above
_RENEW = f"UPDATE calls SET held_until = db_now() + {HELD_SECONDS} WHERE id = ? AND state = 'held'"  # noqa: S608 - as above
#: Also settles a call that was given up as lost: its actual cost is known after all.
_SETTLE = """
UPDATE calls SET state = 'settled', spent_usd = ?, outcome = ?, status = ?, request_id = ?, input_tokens = ?,
    output_tokens = ?, cache_read_tokens = ?, cache_write_tokens = ?, cache_write_1h_tokens = ?, web_searches = ?,
    is_estimate = ?, duration_ms = ?
WHERE id = ? AND state <> 'settled'
"""
_LOSE = "UPDATE calls SET state = 'lost', spent_usd = held_usd WHERE state = 'held' AND held_until < db_now() + ?"
#: A clock that is set back refunds nothing: time does not go behind the sprite's newest call.
_NOW = "SELECT db_now() AS now, (SELECT max(at) FROM calls WHERE sprite = ?) AS newest"
_STANDING = """
SELECT coalesce(sum(spent_usd) FILTER (WHERE state <> 'held' AND at >= ?), 0) AS day_spent,
    coalesce(sum(held_usd) FILTER (WHERE state = 'held' AND at >= ?), 0) AS day_held,
    coalesce(sum(spent_usd) FILTER (WHERE state <> 'held'), 0) AS month_spent,
    coalesce(sum(held_usd) FILTER (WHERE state = 'held'), 0) AS month_held,
    coalesce((SELECT usd FROM raised_limits WHERE raised_limits.sprite = ? AND day = ?), 0) AS raised
FROM calls WHERE sprite = ? AND at >= ?
"""
# A call in flight counts with its hold.
_SPEND = """
SELECT sprite, coalesce(sum(coalesce(spent_usd, held_usd)) FILTER (WHERE at >= ?), 0) AS today,
    coalesce(sum(coalesce(spent_usd, held_usd)) FILTER (WHERE at >= ?), 0) AS month,
    coalesce(sum(coalesce(spent_usd, held_usd)), 0) AS total,
    count(*) AS calls, count(*) FILTER (WHERE coalesce(spent_usd, held_usd) IS NULL) AS unpriced,
    coalesce(sum(spent_usd) FILTER (WHERE at >= ? AND is_estimate = 1 AND state <> 'held'), 0) AS estimated
FROM calls GROUP BY sprite ORDER BY sprite
"""
_TODAY = """
SELECT sprite, coalesce(sum(spent_usd), 0) AS usd FROM calls
WHERE at >= ? AND state <> 'held' AND is_estimate >= ? GROUP BY sprite
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
    #: Tokens that the rest of the budget takes off the longest answer; not in the row.
    cut_tokens: int = 0

    def row(self) -> tuple[object, ...]:
        """Return the values of the call's row, in the order of `_COLUMNS`."""
        return (self.id, self.sprite, self.held_usd, self.spent_usd, self.state, self.at, self.model, *self.ending())

    def ending(self) -> tuple[object, ...]:
        """Return the values of the row's columns from `outcome` on, known when the call has ended."""
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


async def spend(database: Database) -> list[Spend]:
    """Return the spending by sprite. Calls in flight count with their holds. Raise DatabaseError."""

    def read(db: Transaction) -> list[Any]:
        at = _now(db)
        return db.execute(_SPEND, (day_begins(at), month_begins(at), day_begins(at))).fetchall()

    return [Spend(**dict(row)) for row in await database.read(read)]


async def spent_today(database: Database, *, only_estimates: bool = False) -> dict[str, float]:
    """Return the US dollars spent since the UTC day began, by sprite, without calls in flight. Raise DatabaseError."""
    rows = await database.read(lambda db: db.execute(_TODAY, (day_begins(_now(db)), int(only_estimates))).fetchall())
    return {row["sprite"]: row["usd"] for row in rows}


def _now(db: Transaction) -> float:
    now: float = db.execute("SELECT db_now() AS now").fetchone()["now"]
    return now


def standing(db: Transaction, sprite: str) -> Standing:
    """Return the spending of a sprite in its current day and month."""
    row = db.execute(_NOW, (sprite,)).fetchone()
    at = max(row["now"], row["newest"] or 0.0)
    day, number = day_begins(at), int(at // DAY_SECONDS)
    sums = db.execute(_STANDING, (day, day, sprite, number, sprite, month_begins(at))).fetchone()
    return Standing(at=at, **dict(sums))


async def reserve(database: Database, call: ModelCall, bounds: Bounds | None, limits: Limits) -> BudgetError | None:
    """Hold the cost of a call and write its row if its minimum cost is left; otherwise return the refusal.

    Calls without a known price (`bounds` is None) are always admitted. A sprite's calls are admitted one at a time,
    whichever bridge asks.
    """

    def write(tx: Transaction) -> BudgetError | None:
        now = standing(tx, call.sprite)
        refusal = None if bounds is None else limits.refusal(now, bounds)
        if refusal is None:
            call.at = now.at
            if bounds is not None:
                call.cut_tokens = bounds.cut(limits.left(now))
                call.held_usd = bounds.most - call.cut_tokens * bounds.token_usd
            tx.execute(_HOLD, call.row())
        return refusal

    return await database.write_in_turn(f"spending of {call.sprite}", write)


async def settle(database: Database, call: ModelCall) -> Standing:
    """Replace the hold of a call by its actual cost; return the sprite's spending. Repeating it changes nothing."""

    def write(tx: Transaction) -> Standing:
        tx.execute(_SETTLE, (call.spent_usd, *call.ending(), call.id))
        return standing(tx, call.sprite)

    return await database.write_in_turn(f"spending of {call.sprite}", write)


async def bar(database: Database, call: ModelCall) -> None:
    """Make sure that an interrupted `reserve` reserves nothing later: the first row with a call's id wins."""
    await database.statement(_TOMBSTONE, call.row())


async def renew(database: Database, call_id: str) -> None:
    """Extend the time until which a running call reserves its cost."""
    await database.statement(_RENEW, (call_id,))


async def lose(database: Database, ahead: float = 0.0) -> int:
    """Count calls whose reservation ends within `ahead` seconds at their maximum cost; return the number of calls."""
    return await database.write_in_turn("lost calls", lambda tx: tx.execute(_LOSE, (ahead,)).rowcount)


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


async def raise_today(database: Database, sprite: str, usd: float) -> Standing:
    """Raise a sprite's budget for one day, and delete its raises of earlier days; return its spending."""

    def write(tx: Transaction) -> Standing:
        day = standing(tx, sprite).day
        tx.execute(_RAISE, (sprite, day, usd))
        tx.execute("DELETE FROM raised_limits WHERE sprite = ? AND day < ?", (sprite, day))
        return standing(tx, sprite)

    return await database.write(write)


class Warnings:
    """Call `listeners` with sprite and message when a share of its day's budget is spent, once per day and limit."""

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
