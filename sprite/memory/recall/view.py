"""Memory as people and programs look at it: files, versions, learnings, actions, one turn, all in numbers.

Read-only. The gateway, the command line and the state a client gets all look through here.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import msgspec

from sprite.database.memory import FileVersion, MemoryDB
from sprite.database.spending import seconds_since_midnight
from sprite.database.transcript import TranscriptDB
from sprite.errors import PeerError
from sprite.memory.files import BOOT_ORDER, LINE_LIMITS, MemoryFiles, line_count, managed_by
from sprite.memory.recall.hits import Found
from sprite.memory.recall.search import (
    DEFAULT_LIMIT,
    search,
)
from sprite.memory.recall.timeline import (
    Made,
    curation_row,
    turn_row,
)
from sprite.protocol.shapes import FileState, MemoryState

#: Rows of one answer; a client asks again with `after` or `before`.
MAX_ROWS = 500
DAYS_SHOWN = 7
SESSIONS_SHOWN = 5
REFUSALS_SHOWN = 5


class MemoryView:
    """A look into memory."""

    def __init__(self, transcript: TranscriptDB, memory: MemoryDB, files: MemoryFiles) -> None:
        self._transcript = transcript
        self._memory = memory
        self._files = files

    async def state(self) -> MemoryState:
        """Memory in numbers."""
        turns, waiting, _ = await self._transcript.counts()
        return MemoryState(
            files=self.files(),
            learnings=await self._memory.learning_count(),
            turns=turns,
            waiting=waiting,
            spend_usd=await self._transcript.spending.total(),
        )

    def files(self) -> list[FileState]:
        """The six files, as the boot prompt has them."""
        return [
            FileState(
                name=name,
                lines=line_count(self._files.read(name)),
                limit=LINE_LIMITS[name],
                managed=managed_by(name),
                updated_at=self._files.modified_at(name),
            )
            for name in BOOT_ORDER
        ]

    async def file(self, name: str) -> tuple[str, int]:
        """A file's content and version (0 while it is as shipped). PeerError for an unknown name."""
        latest = await self._memory.latest_version(known_file(name))
        return self._files.read(name), latest.version if latest else 0

    async def file_version(self, name: str, version: int) -> FileVersion:
        """One version of a file. PeerError if there is none."""
        found = await self._memory.version(known_file(name), version)
        if found is None:
            raise PeerError(f"{name} has no version {version}.", code="not_found")
        return found

    async def history(self, name: str) -> list[dict[str, Any]]:
        """Every version of a file: `{version, curation_id, at, lines, source}`, oldest first."""
        return [
            {
                "version": version.version,
                "curation_id": version.curation_id,
                "at": version.created_at,
                "lines": line_count(version.content),
                "source": version.source,
            }
            for version in await self._memory.versions(known_file(name))
        ]

    async def search(self, query: str, limit: int = DEFAULT_LIMIT) -> Found:
        """What fits a question, best first."""
        return await search(self._transcript, self._memory, query, limit)

    async def learnings(self, after: int = 0, limit: int = 100) -> list[dict[str, Any]]:
        """Learnings above an id as rows, oldest first."""
        rows = await self._memory.learnings(after, max(1, min(limit, MAX_ROWS)))
        return [dataclasses.asdict(row) for row in rows]

    async def newest_learnings(self, before: int | None = None, limit: int = 100) -> list[dict[str, Any]]:
        """Learnings (below an id) as rows, newest first."""
        rows = await self._memory.learnings_before(before, max(1, min(limit, MAX_ROWS)))
        return [dataclasses.asdict(row) for row in rows]

    async def curations(self, before: int | None = None, limit: int = 100) -> list[dict[str, Any]]:
        """What changed memory (below an id), newest first: see `timeline.curation_row`."""
        curations = await self._transcript.curations.before(before, max(1, min(limit, MAX_ROWS)))
        if not curations:
            return []
        span = (curations[-1].id, curations[0].id)
        made = Made(
            await self._memory.learning_counts(*span),
            await self._memory.versions_made(*span),
            await self._memory.reports_of(*span),
        )
        _, generation = await self._transcript.curations.activation()
        return [curation_row(curation, made, generation) for curation in curations]

    async def observations(self, before: int | None = None, limit: int = 100) -> list[dict[str, Any]]:
        """Turns (below an id), newest first: see `timeline.turn_row`."""
        turns = await self._transcript.observations_before(before, max(1, min(limit, MAX_ROWS)))
        return [turn_row(turn) for turn in turns]

    async def health(self) -> dict[str, Any]:
        """Memory and what it costs, in numbers; spend in US dollars, as far as prices are known."""
        state = await self.state()
        spend = state.spend_usd
        calls, unpriced, newest = await self._transcript.spending.curation_counts()
        curated = state.turns - state.waiting
        lost_calls, lost_usd = await self._transcript.spending.lost_calls()
        tokens_read, tokens_written = await self._transcript.spending.tokens()
        return {
            "sessions": await self._transcript.session_count(),
            "turns": state.turns,
            "waiting": state.waiting,
            "learnings": state.learnings,
            "unverified": await self._memory.unverified_count(),
            "open_actions": len(await self._memory.actions("pending")),
            "curations": calls,
            "last_curation_at": newest,
            "files": msgspec.to_builtins(state.files),
            "spend_today_usd": await self._transcript.spending.total(since=time.time() - seconds_since_midnight()),
            "spend_usd": spend,
            "usd_per_100_turns": spend / curated * 100 if curated else None,
            "calls_of_unknown_price": unpriced,
            "lost_calls": lost_calls,
            "lost_usd": lost_usd,
            "tokens_read": tokens_read,
            "tokens_written": tokens_written,
            "spend_by_day": [
                {"day": day, "usd": usd, "calls": calls_}
                for day, usd, calls_ in await self._transcript.spending.by_day(DAYS_SHOWN)
            ],
            "spend_by_session": [
                {"session_id": session, "started_at": at, "turns": turns, "usd": usd}
                for session, at, turns, usd in await self._transcript.spending.by_session(SESSIONS_SHOWN)
            ],
            "refusals": [
                {"curation_id": r.curation_id, "kind": r.kind, "detail": r.detail}
                for r in await self._memory.reports(REFUSALS_SHOWN)
            ],
        }

    async def actions(self) -> list[dict[str, Any]]:
        """Every action as a row, most urgent first."""
        return [dataclasses.asdict(action) for action in await self._memory.actions()]

    async def turn(self, turn_id: int) -> dict[str, Any]:
        """One turn of the log. PeerError if there is none."""
        turn = await self._transcript.observation(turn_id)
        if turn is None:
            raise PeerError(f"There is no turn {turn_id}.", code="not_found")
        return dataclasses.asdict(turn)


def known_file(name: str) -> str:
    """The name of a memory file. PeerError for any other."""
    if name not in LINE_LIMITS:
        raise PeerError(f"There is no memory file {name[:80]!r}; there are {', '.join(BOOT_ORDER)}.", code="not_found")
    return name
