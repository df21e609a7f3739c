"""Cost of curation from the log's rows, including failed calls. US dollars; times are Unix seconds."""

from __future__ import annotations

import time

from sprite.database.connection import Database

SECONDS_PER_DAY = 86_400.0


def seconds_since_midnight() -> float:
    """Return the seconds since the start of the UTC day, the period of the spending limit."""
    return time.time() % SECONDS_PER_DAY


class Spending:
    """Read the cost of calls."""

    def __init__(self, database: Database) -> None:
        self._db = database

    async def curation_counts(self) -> tuple[int, int, float | None]:
        """Return (curated batches, calls of unknown price, time of the last batch)."""
        row = await self._db.fetch_one(
            "SELECT count(*), (SELECT count(*) - count(cost_usd) FROM model_calls), max(created_at) "
            "FROM curations WHERE kind = 'batch'"
        )
        return (row[0], row[1], row[2]) if row else (0, 0, None)

    async def lost_calls(self) -> tuple[int, float]:
        """Return (paid calls without a curation, their known cost in US dollars)."""
        row = await self._db.fetch_one("SELECT count(*), coalesce(sum(cost_usd), 0.0) FROM lost_calls")
        return (int(row[0]), float(row[1])) if row else (0, 0.0)

    async def total(self, since: float = 0.0) -> float:
        """Return the known cost of curation since a time, in US dollars."""
        return float(
            await self._db.fetch_value(
                "SELECT coalesce(sum(cost_usd), 0.0) FROM model_calls WHERE created_at >= ?", (since,)
            )
        )

    async def tokens(self) -> tuple[int, int]:
        """Return the total input and output tokens of curation, including cached ones."""
        row = await self._db.fetch_one(
            "SELECT coalesce(sum(coalesce(json_extract(usage_json, '$.input_tokens'), 0) "
            "+ coalesce(json_extract(usage_json, '$.cache_creation_input_tokens'), 0) "
            "+ coalesce(json_extract(usage_json, '$.cache_read_input_tokens'), 0)), 0), "
            "coalesce(sum(json_extract(usage_json, '$.output_tokens')), 0) FROM model_calls "
            "WHERE json_valid(usage_json)"
        )
        return (int(row[0]), int(row[1])) if row else (0, 0)

    async def by_day(self, days: int) -> list[tuple[str, float, int]]:
        """Return (UTC day, US dollars, calls) of the newest days with model calls, newest first."""
        rows = await self._db.fetch_all(
            "SELECT date(created_at, 'unixepoch') AS day, coalesce(sum(cost_usd), 0.0), count(*) FROM model_calls "
            "GROUP BY day ORDER BY day DESC LIMIT ?",
            (days,),
        )
        return [(str(row[0]), float(row[1]), int(row[2])) for row in rows]

    async def by_session(self, sessions: int) -> list[tuple[str, float, int, float]]:
        """Return (session, start time, turns, US dollars) of the newest sessions, newest first.

        The cost of a batch over several sessions is divided among its turns.
        """
        rows = await self._db.fetch_all(
            "WITH newest AS (SELECT id, started_at, observation_count FROM sessions ORDER BY started_at DESC LIMIT ?) "
            "SELECT n.id, n.started_at, n.observation_count, coalesce((SELECT sum(c.cost_usd * 1.0 / (SELECT count(*) "
            "FROM observations b WHERE b.id BETWEEN c.first_observation_id AND c.last_observation_id)) "
            "FROM observations o JOIN curations c ON c.kind = 'batch' "
            "AND o.id BETWEEN c.first_observation_id AND c.last_observation_id WHERE o.session_id = n.id), 0.0) "
            "FROM newest n ORDER BY n.started_at DESC",
            (sessions,),
        )
        return [(str(row[0]), float(row[1]), int(row[2]), float(row[3])) for row in rows]
