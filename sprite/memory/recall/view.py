"""Memory as people and programs look at it: files, versions, learnings, actions, one turn, all in numbers.

Read-only. The gateway, the command line and the state a client gets all look through here.
"""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path

import msgspec

from sprite.config import LEAST_TURNS
from sprite.database.actions import Action
from sprite.database.curations import Drift
from sprite.database.memory import FileVersion, Learning, MemoryDB
from sprite.database.spending import seconds_since_midnight
from sprite.database.transcript import TranscriptDB
from sprite.errors import PeerError
from sprite.memory.files import (
    BOOT_ORDER,
    DEPLOYED,
    LINE_LIMITS,
    MemoryFiles,
    line_count,
    lines_shown,
    managed_by,
    over_limits,
    template,
)
from sprite.memory.recall.as_of import file_as_of
from sprite.memory.recall.hits import Found
from sprite.memory.recall.query import own_names
from sprite.memory.recall.search import (
    DEFAULT_LIMIT,
    search,
)
from sprite.memory.recall.timeline import (
    Made,
    action_of,
    curation_row,
    logged_turn,
    turn_row,
)
from sprite.protocol.projects import others_project, project_or_name
from sprite.protocol.rows import (
    ActionChange,
    ActionRow,
    CurationRow,
    DaySpend,
    Drifted,
    Health,
    LearningRow,
    LoggedTurn,
    Project,
    Refusal,
    SessionSpend,
    TurnRow,
    VersionRow,
)
from sprite.protocol.shapes import FileState, MemoryState, QuarantinedTurn

#: Rows of one answer; a client asks again with `after` or `before`.
MAX_ROWS = 500
#: Each client is told of so many turns that are set aside; the others are told when these are settled.
MAX_QUARANTINED = 100
DAYS_SHOWN = 7
SESSIONS_SHOWN = 5
REFUSALS_SHOWN = 5
#: What asks for a person: a turn that has waited so long, a disk with so little left.
LONGEST_WAIT_SECONDS = 86_400.0
LEAST_FREE_BYTES = 256 * 2**20
_HISTORY = msgspec.json.Decoder(list[ActionChange])


class MemoryView:
    """A look into memory."""

    def __init__(
        self, transcript: TranscriptDB, memory: MemoryDB, files: MemoryFiles, own_project: str | None = None
    ) -> None:
        """`own_project` is the key of the sprite's own workspace: what is of it is the person's own."""
        self._transcript = transcript
        self._memory = memory
        self._files = files
        self._own_project = own_project

    async def state(self) -> MemoryState:
        """Memory in numbers."""
        turns, waiting, _ = await self._transcript.counts()
        return MemoryState(
            files=self.files(),
            learnings=await self._memory.learning_count(),
            turns=turns,
            waiting=waiting,
            spend_usd=await self._transcript.spending.total(),
            quarantined=await self.quarantined(),
            drift=list(await self.drift()),
        )

    async def quarantined(self) -> list[QuarantinedTurn]:
        """The turns that are set aside, oldest first."""
        turns = await self._transcript.quarantine.turns(MAX_QUARANTINED)
        return [msgspec.convert(turn, QuarantinedTurn, from_attributes=True) for turn in turns]

    def files(self) -> list[FileState]:
        """The six files, as the boot prompt has them."""
        return [
            FileState(
                name=name,
                lines=lines_shown(name, self._files.read(name)),
                limit=LINE_LIMITS[name],
                managed=managed_by(name),
                updated_at=self._files.modified_at(name),
            )
            for name in BOOT_ORDER
        ]

    async def file(self, name: str) -> tuple[str, int]:
        """A file's content and version (0 while it is as shipped). PeerError for an unknown name.

        Both are of one row: an edit of this content that names this version takes nothing back.
        """
        if known_file(name) in DEPLOYED:
            return self._files.read(name), 0
        latest = await self._memory.latest_version(name)
        return (latest.content, latest.version) if latest else (template(name), 0)

    async def file_at(self, name: str, at: float, scratch: Path) -> tuple[str, int]:
        """The same as it was at a time, in Unix seconds; `scratch` is a folder to work in."""
        until = await self._transcript.curations.newest_event(at)
        return await file_as_of(self._transcript, self._memory, scratch, known_file(name), until)

    def project(self, given: str | None) -> str | None:
        """The key of a project that was asked for; None for the person's own. PeerError if it is no key."""
        return others_project(given, self._own_project)

    async def projects(self) -> list[Project]:
        """The projects that turns are of, the one with the newest first."""
        learned = await self._memory.learnings_by_project()
        return [
            Project(key, turns, learned.get(key, 0), last_at)
            for key, turns, last_at in await self._transcript.projects(MAX_ROWS)
        ]

    async def around(self, turn_id: int, before: int, after: int) -> list[LoggedTurn]:
        """A turn with so many of its conversation before and after it, oldest first. PeerError if there is none."""
        turns = await self._transcript.conversation(turn_id, before, after)
        if not turns:
            raise PeerError(f"There is no turn {turn_id}.", code="not_found")
        return [logged_turn(turn) for turn in turns]

    async def drift(self) -> dict[str, Drift]:
        """What stands on disk in files that changed while the agent was at work, until a person decides."""
        return await self._transcript.curations.open_drift()

    async def file_version(self, name: str, version: int) -> FileVersion:
        """One version of a file. PeerError if there is none."""
        found = await self._memory.version(known_file(name), version)
        if found is None:
            raise PeerError(f"{name} has no version {version}.", code="not_found")
        return found

    async def history(self, name: str) -> list[VersionRow]:
        """Every version of a file, oldest first."""
        return [
            VersionRow(
                version=version.version,
                curation_id=version.curation_id,
                at=version.created_at,
                lines=line_count(version.content),
                source=version.source,
            )
            for version in await self._memory.versions(known_file(name))
        ]

    async def search(self, query: str, limit: int = DEFAULT_LIMIT, project: str | None = None) -> Found:
        """What fits a question, best first; of one `project` alone, by its key or its folder's name.

        PeerError if it is neither.
        """
        if project is not None:
            project = project_or_name(project)
        names = own_names(self._files.read("user.md"))
        return await search(
            self._transcript, self._memory, query, limit, names, project=project, own_project=self._own_project
        )

    async def learnings(self, after: int = 0, limit: int = 100) -> list[LearningRow]:
        """Learnings above an id as rows, oldest first."""
        rows = await self._memory.learnings(after, max(1, min(limit, MAX_ROWS)))
        return [learning_row(row) for row in rows]

    async def newest_learnings(self, before: int | None = None, limit: int = 100) -> list[LearningRow]:
        """Learnings (below an id) as rows, newest first."""
        rows = await self._memory.learnings_before(before, max(1, min(limit, MAX_ROWS)))
        return [learning_row(row) for row in rows]

    async def curations(self, before: int | None = None, limit: int = 100) -> list[CurationRow]:
        """What changed memory (below an id), newest first."""
        curations = await self._transcript.curations.before(before, max(1, min(limit, MAX_ROWS)))
        if not curations:
            return []
        span = (curations[-1].id, curations[0].id)
        made = Made(
            await self._memory.learning_counts(*span),
            await self._memory.versions_made(*span),
            await self._memory.reports_of(*span),
            await self._memory.action_contents({number for each in curations if (number := action_of(each))}),
        )
        _, generation = await self._transcript.curations.activation()
        return [curation_row(curation, made, generation) for curation in curations]

    async def observations(self, before: int | None = None, limit: int = 100) -> list[TurnRow]:
        """Turns (below an id), newest first."""
        turns = await self._transcript.observations_before(before, max(1, min(limit, MAX_ROWS)))
        return [turn_row(turn) for turn in turns]

    async def health(self, *, daily_cap_usd: float | None, last_error: str | None) -> Health:
        """Memory and what it costs, in numbers; the cap and what went wrong last are known elsewhere."""
        state = await self.state()
        spending = self._transcript.spending
        calls, unpriced, newest = await spending.curation_counts()
        curated = state.turns - state.waiting - await self._transcript.quarantine.count()
        lost_calls, lost_usd = await spending.lost_calls()
        tokens_read, tokens_written = await spending.tokens()
        return Health(
            sessions=await self._transcript.session_count(),
            turns=state.turns,
            waiting=state.waiting,
            learnings=state.learnings,
            unverified=await self._memory.unverified_count(),
            open_actions=len(await self._memory.actions("open")),
            curations=calls,
            last_curation_at=newest,
            files=state.files,
            spend_today_usd=await spending.total(since=time.time() - seconds_since_midnight()),
            spend_usd=state.spend_usd,
            usd_per_100_turns=state.spend_usd / curated * 100 if curated else None,
            calls_of_unknown_price=unpriced,
            lost_calls=lost_calls,
            lost_usd=lost_usd,
            tokens_read=tokens_read,
            tokens_written=tokens_written,
            spend_by_day=[DaySpend(day, usd, calls_) for day, usd, calls_ in await spending.by_day(DAYS_SHOWN)],
            spend_by_session=[
                SessionSpend(session, at, turns, usd)
                for session, at, turns, usd in await spending.by_session(SESSIONS_SHOWN)
            ],
            refusals=[Refusal(r.curation_id, r.kind, r.detail) for r in await self._memory.reports(REFUSALS_SHOWN)],
            drift=[drifted(drift) for drift in (await self.drift()).values()],
            daily_cap_usd=daily_cap_usd,
            last_error=last_error,
            attention=await self._attention(state.waiting, last_error),
            quarantined=state.quarantined,
        )

    async def _attention(self, waiting: int, last_error: str | None) -> list[str]:
        words = [last_error] if last_error else []
        words += over_limits({name: self._files.read(name) for name in LINE_LIMITS})
        # Fewer wait for as long as nothing more is said.
        oldest = await self._transcript.waiting(1) if waiting >= LEAST_TURNS else []
        if oldest and time.time() - oldest[0].timestamp > LONGEST_WAIT_SECONDS:
            words.append(f"turn {oldest[0].id} has waited to be curated for more than a day")
        free = self._files.free_bytes()
        if free < LEAST_FREE_BYTES:
            words.append(f"the disk is nearly full: {free // 2**20} MiB are free")
        return words

    async def actions(self) -> list[ActionRow]:
        """Every action as a row, most urgent first."""
        return [action_row(action) for action in await self._memory.actions()]

    async def turn(self, turn_id: int) -> LoggedTurn:
        """One turn of the log. PeerError if there is none."""
        turn = await self._transcript.observation(turn_id)
        if turn is None:
            raise PeerError(f"There is no turn {turn_id}.", code="not_found")
        return logged_turn(turn)


def learning_row(learning: Learning) -> LearningRow:
    """A learning as it travels."""
    return msgspec.convert(learning, LearningRow, from_attributes=True)


def action_row(action: Action) -> ActionRow:
    """An action as it travels."""
    return msgspec.convert({**asdict(action), "history": _HISTORY.decode(action.history_json)}, ActionRow)


def drifted(drift: Drift) -> Drifted:
    """A file's drift as it travels, without its content."""
    return Drifted(drift.name, drift.found_at, drift.curation_id, drift.source)


def known_file(name: str) -> str:
    """The name of a memory file. PeerError for any other."""
    if name not in LINE_LIMITS:
        raise PeerError(f"There is no memory file {name[:80]!r}; there are {', '.join(BOOT_ORDER)}.", code="not_found")
    return name
