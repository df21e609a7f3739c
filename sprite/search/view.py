"""Read-only views of memory for people and programs: files, versions, learnings, actions, turns, health."""

from __future__ import annotations

import json
import sqlite3
import tempfile
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import msgspec

from sprite.config import LEAST_TURNS
from sprite.errors import PeerError
from sprite.log.curations import CURATED, OFF_RECORD, QUARANTINED, Curation, Drift, seconds_since_midnight
from sprite.log.transcript import Observation, TranscriptDB
from sprite.memory import files as memory_files
from sprite.memory.database import FileVersion, MemoryDB, open_memory
from sprite.memory.decision import MADE_IDS, Action, Projected
from sprite.memory.opening import replay_aside
from sprite.memory.query import own_names
from sprite.memory.rule_rows import all_rules
from sprite.memory.words import content_words, share
from sprite.protocol import shapes
from sprite.protocol.observing import others_project, project_or_name
from sprite.search.meaning.meaning import Meaning
from sprite.search.search import DEFAULT_LIMIT, Found, search


async def file_as_of(
    transcript: TranscriptDB, memory: MemoryDB, scratch: Path, name: str, until: int
) -> tuple[str, int]:
    """Return (content, version) of a memory file after event `until` of the log; `scratch` is a temporary folder."""
    curations = transcript.curations
    if await curations.activation(until) == await curations.activation():
        found = await memory.version_after(name, until)
    else:
        # memory.db no longer has that history, but the log does.
        with tempfile.TemporaryDirectory(dir=scratch, prefix="as-of-") as folder:
            path = Path(folder) / "memory.db"
            await replay_aside(transcript, path, lambda: None, until=until)
            async with open_memory(path) as then:
                found = await then.latest_version(name)
    return (found.content, found.version) if found else (memory_files.template(name), 0)


#: A line rests on a learning that has this part of its words; this many of them are shown.
RESTS_ON, MOST_BEHIND = 0.5, 5
#: Lists show the beginning of a turn; the turn itself has the rest.
EXCERPT_CHARS = 400
#: Fields of an event that a list may show, without any written or forgotten text. An action's text comes from its
#: current state.
_TOLD = frozenset(
    "name source action_id status generation drift accepted rejected by turns learnings curations lines cards reason "
    "retry undone files learning op action once due rrule tz next late_by priority what".split()
)


def action_of(curation: Curation) -> int | None:
    """Return the number of the action that a curation concerns, or None."""
    if curation.kind not in {"action", "edit"}:
        return None
    said = _object(curation.response)
    if said.get("op") == "add":
        return MADE_IDS + curation.id
    number = said.get("action", said.get("action_id"))
    return number if isinstance(number, int) else None


def turn_row(turn: Observation) -> shapes.TurnRow:
    """Convert a turn to a row: both sides cut, with the names of the tools."""
    return shapes.TurnRow(
        at=turn.timestamp,
        user_message=_excerpt(turn.user_message),
        agent_response=_excerpt(turn.agent_response),
        tools=_tools(turn.tool_calls),
        curated=turn.processed == CURATED,
        **_facts(turn),
    )


def logged_turn(turn: Observation) -> shapes.LoggedTurn:
    """Convert a complete turn to its wire format."""
    return shapes.LoggedTurn(
        timestamp=turn.timestamp,
        user_message=turn.user_message,
        tool_calls=_list(turn.tool_calls),
        agent_response=turn.agent_response,
        processed=turn.processed == CURATED,
        notice=turn.notice,
        **_facts(turn),
    )


def _facts(turn: Observation) -> dict[str, Any]:
    names = ("id", "session_id", "sequence_num", "outcome", "trigger", "mission_id", "project", "source", "asked_by")
    marks = {"quarantined": turn.processed == QUARANTINED, "off_record": turn.processed == OFF_RECORD}
    return {name: getattr(turn, name) for name in names} | marks


def _detail(curation: Curation, actions: Mapping[int, str]) -> dict[str, Any]:
    if curation.kind == "batch":
        return {}
    said = _object(curation.response)
    told = {name: value for name, value in said.items() if name in _TOLD}
    # A learned action's number varies between extractions, so its row contains its text.
    of = said.get("of")
    content = of.get("content") if isinstance(of, dict) else actions.get(action_of(curation) or 0)
    return told | {"content": _excerpt(content)} if isinstance(content, str) else told


def _object(text: str | None) -> dict[str, Any]:
    """Parse a JSON object; return an empty one for anything else."""
    try:
        found = json.loads(text or "")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _excerpt(text: str) -> str:
    return text if len(text) <= EXCERPT_CHARS else f"{text[:EXCERPT_CHARS]}…"


def _tools(calls: Any) -> list[str]:
    """Return the names of the tools that a turn called."""
    return [str(call["name"]) for call in _list(calls) if isinstance(call, dict) and call.get("name")][:50]


def _list(calls: Any) -> list[Any]:
    """Return a turn's tool calls, without values that are no object: other programs may have written any JSON."""
    return calls if isinstance(calls, list) else []


#: Rows per response; clients page with `after` or `before`.
MAX_ROWS = 500
#: Quarantined turns sent to each client; more follow as these are settled.
MAX_QUARANTINED = 100
REFUSALS_SHOWN = 5
#: Thresholds for a warning: the age of a waiting turn, and the free disk space.
LONGEST_WAIT_SECONDS = 86_400.0
LEAST_FREE_BYTES = 256 * 2**20
_HISTORY = msgspec.json.Decoder(list[shapes.ActionChange])


class MemoryView:
    """Read-only access to memory."""

    def __init__(
        self,
        transcript: TranscriptDB,
        memory: MemoryDB,
        files: memory_files.MemoryFiles,
        own_project: str | None = None,
        meaning: Meaning | None = None,
    ) -> None:
        """`own_project` is the key of the sprite's workspace, whose items belong to the user."""
        self._transcript = transcript
        self._memory = memory
        self._files = files
        self._own_project = own_project
        self._meaning = meaning

    async def state(self) -> shapes.MemoryState:
        """Return memory's key figures for clients."""
        turns, waiting = await self._transcript.counts()
        return shapes.MemoryState(
            files=self.files(),
            learnings=await self._memory.learning_count(),
            turns=turns,
            waiting=waiting,
            spend_usd=await self._transcript.spending.total(),
            quarantined=await self.quarantined(),
            drift=list(await self.drift()),
        )

    async def quarantined(self) -> list[shapes.QuarantinedTurn]:
        """Return the quarantined turns, oldest first."""
        return await self._transcript.quarantine.turns(MAX_QUARANTINED)

    def files(self) -> list[shapes.FileState]:
        """Return the six files in the order of the boot prompt."""
        return [
            shapes.FileState(
                name=name,
                lines=memory_files.lines_shown(name, self._files.read(name)),
                limit=memory_files.LINE_LIMITS[name],
                managed="deploy" if name in memory_files.DEPLOYED else "curated",
                updated_at=self._files.modified_at(name),
            )
            for name in memory_files.BOOT_ORDER
        ]

    async def file(self, name: str) -> tuple[str, int]:
        """Return a file's content and version (0 for the shipped one). PeerError for an unknown name.

        Both come from one row, so an edit based on this version overwrites no newer content.
        """
        if known_file(name) in memory_files.DEPLOYED:
            return self._files.read(name), 0
        latest = await self._memory.latest_version(name)
        return (latest.content, latest.version) if latest else (memory_files.template(name), 0)

    async def file_at(self, name: str, at: float, scratch: Path) -> tuple[str, int]:
        """Return a file's content and version at a time in Unix seconds; `scratch` is a temporary folder."""
        until = await self._transcript.curations.newest_event(at)
        return await file_as_of(self._transcript, self._memory, scratch, known_file(name), until)

    def project(self, given: str | None) -> str | None:
        """Return the key of a project that a client names, or None for the user's own. PeerError if it is invalid."""
        return others_project(given, self._own_project)

    async def around(self, turn_id: int, before: int, after: int) -> list[shapes.LoggedTurn]:
        """Return a turn and its neighbours in the conversation, oldest first. PeerError if it does not exist."""
        turns = await self._transcript.conversation(turn_id, before, after)
        if not turns:
            raise PeerError(f"There is no turn {turn_id}.", code="not_found")
        return [logged_turn(turn) for turn in turns]

    async def drift(self) -> dict[str, Drift]:
        """Return the drift of each file about which no person has decided yet, by file name."""
        return await self._transcript.curations.open_drift()

    async def file_version(self, name: str, version: int) -> FileVersion:
        """Return one version of a file. PeerError if it does not exist."""
        found = await self._memory.version(known_file(name), version)
        if found is None:
            raise PeerError(f"{name} has no version {version}.", code="not_found")
        return found

    async def history(self, name: str) -> list[shapes.VersionRow]:
        """Return every version of a file, oldest first."""
        return [
            shapes.VersionRow(
                version=version.version,
                curation_id=version.curation_id,
                at=version.created_at,
                lines=memory_files.line_count(version.content),
                source=version.source,
            )
            for version in await self._memory.versions(known_file(name))
        ]

    async def search(self, query: str, limit: int = DEFAULT_LIMIT, project: str | None = None) -> Found:
        """Search memory, or one `project`, given by its key or its folder's name. PeerError if it is neither."""
        return await search(
            self._transcript,
            self._memory,
            query,
            limit,
            own_names(self._files.read("user.md")),
            project=None if project is None else project_or_name(project),
            own_project=self._own_project,
            meaning=self._meaning,
        )

    async def learnings(self, after: int = 0, limit: int = 100) -> list[shapes.LearningRow]:
        """Return learnings above an id as rows, oldest first."""
        return await self._memory.learnings(after, max(1, min(limit, MAX_ROWS)))

    async def learning(self, learning_id: int) -> shapes.LearningRow:
        """Return one learning as a row. Raise PeerError if there is none."""
        found = await self._memory.learning(learning_id)
        if found is None:
            raise PeerError(f"There is no learning {learning_id}.", code="not_found")
        return found

    async def newest_learnings(self, before: int | None = None, limit: int = 100) -> list[shapes.LearningRow]:
        """Return learnings below an id as rows, newest first."""
        return await self._memory.learnings_before(before, max(1, min(limit, MAX_ROWS)))

    async def curations(self, before: int | None = None, limit: int = 100) -> list[shapes.CurationRow]:
        """Return events that changed memory, below an id, newest first."""
        curations = await self._transcript.curations.before(before, max(1, min(limit, MAX_ROWS)))
        if not curations:
            return []
        span = (curations[-1].id, curations[0].id)
        learnings = await self._memory.learning_counts(*span)
        versions = await self._memory.versions_made(*span)
        reports = await self._memory.reports_of(*span)
        actions = await self._memory.action_contents({number for each in curations if (number := action_of(each))})
        _, generation = await self._transcript.curations.activation()
        rows = []
        for each in curations:
            first, last = each.first_observation_id, each.last_observation_id
            usage = _object(each.usage_json)
            rows.append(
                shapes.CurationRow(
                    id=each.id,
                    at=each.created_at,
                    kind=each.kind,
                    model=each.model,
                    first_turn=first,
                    last_turn=last,
                    turns=last - first + 1 if first is not None and last is not None else 0,
                    learnings=learnings.get(each.id, 0),
                    files=[
                        shapes.MadeVersion(name, version) for made_by, name, version in versions if made_by == each.id
                    ],
                    cost_usd=each.cost_usd,
                    tokens=shapes.TokenCount(usage.get("input_tokens"), usage.get("output_tokens")),
                    rejected=[
                        shapes.Rejected(report.kind, report.detail)
                        for report in reports
                        if report.curation_id == each.id
                    ],
                    detail=_detail(each, actions),
                    active=each.kind != "batch" or each.generation == generation,
                )
            )
        return rows

    async def observations(self, before: int | None = None, limit: int = 100) -> list[shapes.TurnRow]:
        """Return turns below an id as rows, newest first."""
        turns = await self._transcript.observations_before(before, max(1, min(limit, MAX_ROWS)))
        return [turn_row(turn) for turn in turns]

    async def spent(self, since: float) -> shapes.Cost:
        """Return what memory has cost in model calls since a time."""
        spending = self._transcript.spending
        return shapes.Cost(await spending.total(since), await spending.estimated(since))

    async def health(self, *, daily_cap_usd: float | None, last_error: str | None) -> shapes.Health:
        """Return memory's figures and costs; the caller supplies the cap and the last error."""
        state = await self.state()
        spending = self._transcript.spending
        calls, unpriced, newest = await spending.curation_counts()
        curated = state.turns - state.waiting - await self._transcript.quarantine.count()
        return shapes.Health(
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
            refusals=await self._memory.reports(REFUSALS_SHOWN),
            drift=[drifted(drift) for drift in (await self.drift()).values()],
            daily_cap_usd=daily_cap_usd,
            last_error=last_error,
            attention=await self._attention(state.waiting, last_error),
            quarantined=state.quarantined,
        )

    async def _attention(self, waiting: int, last_error: str | None) -> list[str]:
        words = [last_error] if last_error else []
        words += memory_files.over_limits({name: self._files.read(name) for name in memory_files.LINE_LIMITS})
        # Fewer turns wait until more is said, which is normal.
        oldest = await self._transcript.oldest_waiting() if waiting >= LEAST_TURNS else None
        if oldest and time.time() - oldest.timestamp > LONGEST_WAIT_SECONDS:
            words.append(f"turn {oldest.id} has waited to be learned from for more than a day")
        free = self._files.free_bytes()
        if free < LEAST_FREE_BYTES:
            words.append(f"the disk is nearly full: {free // 2**20} MiB are free")
        if self._meaning is not None and self._meaning.trouble:
            words.append(f"search by meaning is off: {self._meaning.trouble}")
        return words

    async def rules(self) -> list[shapes.RuleRow]:
        """Return every rule about tool calls, the oldest first."""
        return await all_rules(self._memory)

    async def actions(self) -> list[shapes.ActionRow]:
        """Return every action as a row, most urgent first."""
        return [action_row(action) for action in await self._memory.actions()]

    async def turn(self, key: int | str) -> shapes.LoggedTurn:
        """Return one turn of the log, by its number or its mission. PeerError if it does not exist."""
        if isinstance(key, int):
            turn, words = await self._transcript.observation(key), f"There is no turn {key}."
        else:
            turn, words = await self._transcript.turn_of(key), "This turn is not in the log (yet)."
        if turn is None:
            raise PeerError(words, code="not_found")
        return logged_turn(turn)

    async def behind(self, line: str) -> list[shapes.LearningRow]:
        """Return the learnings that a line of a memory file rests on, best first, whether they hold or not."""
        words = content_words(line)

        def nearest(tx: sqlite3.Connection) -> list[shapes.LearningRow]:
            memory = Projected(tx)
            found = [*memory.nearest(line, MOST_BEHIND), *memory.nearest(line, MOST_BEHIND, replaced=True)]
            return [row for row in found if words and share(words, content_words(row.content)) >= RESTS_ON]

        return (await self._memory.transact(nearest, is_kept=False))[:MOST_BEHIND]


def action_row(action: Action) -> shapes.ActionRow:
    """Convert an action to its wire format."""
    return msgspec.convert({**asdict(action), "history": _HISTORY.decode(action.history_json)}, shapes.ActionRow)


def drifted(drift: Drift) -> shapes.Drifted:
    """Convert a file's drift to its wire format, without its content."""
    return shapes.Drifted(drift.name, drift.found_at, drift.curation_id)


def known_file(name: str) -> str:
    """Return the name of a memory file. PeerError for any other."""
    if name not in memory_files.LINE_LIMITS:
        raise PeerError(
            f"There is no memory file {name[:80]!r}; the files are {', '.join(memory_files.BOOT_ORDER)}.",
            code="not_found",
        )
    return name
