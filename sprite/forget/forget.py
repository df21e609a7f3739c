"""Forget words in every store, so that a search over the bytes finds nothing.

The order makes a crash safe at any moment. User-visible stores, the CLI's logs and all derived files come first. The
log still has the words to search for then, so an interrupted forget can be repeated. Then the log changes in one
transaction with its tombstone. The projection, the files and the free pages follow. An empty marker file makes the next
start, or the next forget, finish this. Remote replicas are notified on the way, see `sprite/backup/`.

Each store can search for a forget's target. Register every new table, column or file here:
`tests/stores/test_text_stores.py` compares these lists with the actual stores.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import shutil
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Protocol

from sprite.common.tasks import Breaks, to_its_end
from sprite.config import Settings
from sprite.errors import PeerError
from sprite.forget.decisions import scrub_decisions, scrub_verifications
from sprite.forget.plan import CHUNK, PASSES, Plan, Step, Target, plan, survey
from sprite.forget.scrub import Scrubber, map_strings
from sprite.log.transcript import TranscriptDB
from sprite.memory.database import MemoryDB
from sprite.memory.files import CURATED, DEPLOYED, MemoryFiles
from sprite.memory.folders import refuse_links
from sprite.memory.projection import Projection
from sprite.protocol.shapes import Forgotten, Place
from sprite.undo.contents import Contents
from sprite.workspace.database import SeenText, WorkspaceDB
from sprite.workspace.user_files import is_there

#: Limits for searching the user's own files, which are never changed.
_LARGEST_SEARCHED, _MOST_SEARCHED, _MOST_FILES = 1024 * 1024, 64 * 1024 * 1024, 20_000
#: The registered columns, by database and table. Full text ("..._fts") derives from them and is rewritten.
COLUMNS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "transcript.db": {
        "observations": ("user_message", "tool_calls_json", "agent_response", "notice"),
        "curations": ("response", "decision_json", "verification_json"),
        "turn_journal": ("data_json",),
        "disk_entries": ("path",),
        "file_deeds": ("path",),
        "observations_fts": ("user_message", "agent_response", "tools", "said_on"),
    },
    "memory.db": {
        "learnings": ("content", "evidence", "said"),
        "file_versions": ("content",),
        "reports": ("detail",),
        "pending_actions": ("content", "history_json"),
        "learnings_fts": ("content", "type"),
        "trusted_fts": ("content",),
        "untrusted_fts": ("content",),
    },
    # Derived from a turn's words, and deleted with them.
    "vectors.db": {"vectors": ("person", "reply")},
    "workspace.db": {
        "chat_messages": ("text", "tools_json", "found_json"),
        "session_titles": ("title",),
        "missions": ("text",),
        "cards": ("title", "blocks_json"),
        "stacks": ("name",),
        "canvas_changes": ("was",),
        "host_rules": ("host",),
        "host_connections": ("host",),
        "seen_files": ("path",),
        "changes": ("path",),
        "events": ("frame",),
    },
}


class Store(Protocol):
    """A place that holds people's words."""

    async def find(self, made: Plan) -> list[Place]:
        """Return the matches in the store."""


class SourceStore(Store, Protocol):
    """A store that a forget changes directly. The others derive from the log, or belong to somebody else."""

    async def remove(self, made: Plan) -> None:
        """Remove the matches."""


class LogStore:
    """transcript.db: turns, answers, edits, the journal of an interrupted turn, and file names."""

    def __init__(self, settings: Settings, transcript: TranscriptDB, memory: MemoryDB, step: Step) -> None:
        self._settings = settings
        self._transcript = transcript
        self._memory = memory
        self._step = step

    async def find(self, made: Plan) -> list[Place]:
        """See Store."""
        again = made
        if made.is_done:
            again = made.again()
            await survey(again, self._transcript, self._memory, self._step)
        names = [path for path in await self._names() if _names(path, made.scrubber)]
        decisions = await scrub_decisions(again, self._transcript)
        verifications = await scrub_verifications(again, self._transcript, decisions)
        decided = (decisions.keys() | verifications.keys()) - again.curations.keys()
        return [
            *again.places,
            *(Place("the log", f"what was decided about entry {row}") for row in decided),
            *(Place("the log's list of your files", path) for path in names),
        ]

    async def remove(self, made: Plan) -> None:
        """See Store."""
        log = self._transcript
        decisions = await scrub_decisions(made, log)
        verifications = await scrub_verifications(made, log, decisions)
        await log.user_files.forget(
            lambda path: is_there(self._settings.workspace, path), lambda path: _names(path, made.scrubber)
        )
        changed = list(made.observations.values())
        await log.forget(changed, made.curations, decisions, verifications, made.summary())
        made.is_done = True

    async def _names(self) -> set[str]:
        files = self._transcript.user_files
        return {*(await files.known()).entries, *(deed.path for deed in await files.deeds())}


class MemoryStore:
    """memory.db and the curated files, which are derived from the changed log."""

    def __init__(self, memory: MemoryDB, files: MemoryFiles) -> None:
        self._memory = memory
        self._files = files

    async def find(self, made: Plan) -> list[Place]:
        """See Store."""
        found = [*await self._learnings(made.scrubber), *await self._rows(made.scrubber)]
        for name in CURATED:
            found += await self._lines(name, made)
        return list(dict.fromkeys(found))

    async def _learnings(self, scrubber: Scrubber) -> list[Place]:
        found: list[Place] = []
        after = 0
        breaks = Breaks()
        while rows := await self._memory.learnings(after, CHUNK):
            after = rows[-1].id
            for row in rows:
                await breaks.take()
                if scrubber.takes_learning(row.content, row.source_observation_id):
                    found.append(Place(f"learning {row.id}", row.content))
                elif row.evidence and scrubber.sentences(row.evidence) != row.evidence:
                    found.append(Place(f"the quote of learning {row.id}", row.evidence))
        return found

    async def _rows(self, scrubber: Scrubber) -> list[Place]:
        actions, reports = await self._memory.actions(), await self._memory.reports(_MOST_FILES)
        found = [
            Place("an action", action.content)
            for action in actions
            if scrubber.finds(action.content) or scrubber.finds(action.history_json)
        ]
        return found + [
            Place(f"a refusal of entry {report.curation_id} of the log", report.detail)
            for report in reports
            if scrubber.finds(report.detail)
        ]

    async def _lines(self, name: str, made: Plan) -> list[Place]:
        now = f"{self._files.read(name)}\n{self._files.on_disk(name)}"
        found = [Place(name, line) for line in _lines_taken(now, made)]
        known = {place.text for place in found}
        breaks = Breaks()
        for version in await self._memory.versions(name):
            await breaks.take()
            older = [line for line in _lines_taken(version.content, made) if line not in known]
            found += [Place(f"older versions of {name}", line) for line in older]
        return found


class SeenStore:
    """workspace.db: chat, inbox, canvas and events."""

    def __init__(self, workspace: WorkspaceDB) -> None:
        self._workspace = workspace

    async def find(self, made: Plan) -> list[Place]:
        """See Store."""
        places = Plan("", Scrubber(), Scrubber())
        for text in await self._workspace.texts():
            lost = "" if _goes_whole(text, made) else _left_of(text, made).text
            if lost != text.text:
                places.say(_SHOWN_AS[text.table], _readable(text, text.text), _readable(text, lost))
        return list(places.places)

    async def remove(self, made: Plan) -> None:
        """See Store."""
        texts = await self._workspace.texts()
        rewritten = [left for text in texts if (left := _left_of(text, made)) != text]
        await self._workspace.forget(made.emptied_missions, made.cards, made.session, rewritten)


class ChangesStore:
    """The changed files of turns: their names in workspace.db. `FileStore` searches their contents."""

    def __init__(self, settings: Settings, workspace: WorkspaceDB) -> None:
        self._table = workspace.file_changes
        self._contents = Contents(settings.undo, settings.workspace)

    async def find(self, made: Plan) -> list[Place]:
        """See Store."""
        paths = await self._table.paths()
        return [Place("a changed file's name", path) for path in sorted(paths) if _names(path, made.scrubber)]

    async def remove(self, made: Plan) -> None:
        """See Store."""
        await self._table.forget(made.emptied_missions, lambda path: _names(path, made.scrubber))
        # Contents that only a forgotten turn had.
        await asyncio.to_thread(self._contents.sweep, await self._table.wanted())


class FileStore:
    """All other files below `.os/`: of the CLI, the loader and the follower, and quarantined copies."""

    #: The registered files by pattern, then those without people's words or with the deployer's.
    FILES: Final = (
        *("run/claude/**", "run/boot.md", "run/boot/**", "run/last_error", "run/uploads/**"),
        *("run/re-extract/**", "run/reapply-*/**"),
        *("memory/*.too-large*", "memory/*.no-file*", "memory/memory.db.*", "memory/.*", "follow/**", "undo/**"),
    )
    #: (`.agent-at-work` and `shipped.json` describe the deployed files.)
    FREE: Final = (
        *("src/**", ".venv/**", "VERSION", "memory/shipped.json"),
        *("run/lock", "run/token", "run/address", "run/purge", "run/agent", "run/cli", "run/meaning"),
        *("run/egress.sock", "run/working", "run/seatbelt"),
    )

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def find(self, made: Plan) -> list[Place]:
        """See Store."""
        return await asyncio.to_thread(lambda: [self._place(path) for path in self._having(made)])

    async def remove(self, made: Plan) -> None:
        """See Store."""
        await asyncio.to_thread(self._sweep, made)

    def _place(self, path: Path) -> Place:
        return Place("a file of the program's", str(path.relative_to(self._settings.workspace)))

    def _having(self, made: Plan) -> Iterator[Path]:
        for path in _below(self._settings.system):
            # `MemoryStore` handles the curated files.
            is_memorys = path.parent == self._settings.memory and path.name in CURATED
            is_file = path.is_file() and not path.is_symlink()
            if is_file and not is_memorys and not self._keeps(path) and _has(path, made.scrubber):
                yield path

    def _sweep(self, made: Plan) -> None:
        # The CLI's logs serve to resume a conversation, which must not happen with forgotten words in it. The last boot
        # prompt and the boot files contain the old memory.
        refuse_links(self._settings)
        shutil.rmtree(self._settings.cli_state, ignore_errors=True)
        self._settings.boot_prompt.unlink(missing_ok=True)
        shutil.rmtree(self._settings.boot_files, ignore_errors=True)
        # An interrupted rebuild leaves a complete memory.db.
        for folder in (self._settings.run / "re-extract", *self._settings.run.glob("reapply-*")):
            shutil.rmtree(folder, ignore_errors=True)
        for path in _below(self._settings.system):
            if path.is_file() and not path.is_symlink() and not self._keeps(path):
                derived = path.parent == self._settings.memory
                if derived or _has(path, made.scrubber):
                    path.unlink(missing_ok=True)

    def _keeps(self, path: Path) -> bool:
        """Return whether a file is scrubbed row by row, or was not made by memory."""
        settings = self._settings
        system = settings.system
        # Files that guard or identify the running process.
        left_alone = {settings.lock.name, settings.token_file.name, settings.address_file.name, MARKER}
        if path.name in left_alone or path.is_relative_to(system / "src") or path.is_relative_to(system / ".venv"):
            return True
        if path.parent == settings.memory and path.name in DEPLOYED:
            return True
        # A journal has its database's name. A quarantined copy has a longer name and is deleted.
        stores = (settings.transcript_db, settings.memory_db, settings.workspace_db, settings.vectors_db)
        return any(str(path) in {f"{store}{suffix}" for suffix in ("", "-wal", "-shm")} for store in stores)


class TheirFiles:
    """Files outside of memory: the deployed ones and the user's. They stay and are reported."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._files = MemoryFiles(settings.memory)

    def deployed(self, scrubber: Scrubber) -> list[str]:
        """Return the deployed files with matches."""
        return [name for name in DEPLOYED if self._files.exists(name) and scrubber.finds(self._files.on_disk(name))]

    async def find(self, made: Plan) -> list[Place]:
        """See Store."""
        deployed = [Place(name, "deployed, not learned: change it there") for name in self.deployed(made.scrubber)]
        return deployed + await asyncio.to_thread(lambda: list(self._own(made.scrubber)))

    def _own(self, scrubber: Scrubber) -> Iterator[Place]:
        left, workspace = _MOST_SEARCHED, self._settings.workspace
        folders = (path for path in sorted(workspace.iterdir()) if path != self._settings.system)
        paths = (found for folder in folders for found in ([folder] if folder.is_file() else _below(folder)))
        for _, path in zip(range(_MOST_FILES), paths, strict=False):
            if path.is_symlink() or not path.is_file() or left <= 0:
                continue
            content = _read(path, _LARGEST_SEARCHED)
            left -= len(content)
            if scrubber.finds(content):
                yield Place("a file of yours, which stays", str(path.relative_to(workspace)))


NOT_CONFIRMED: Final = Place("the copy at the bridge", "it has not confirmed yet that it forgot")
#: Exists in the run folder during a forget.
MARKER: Final = "purge"
_SHOWN_AS: Final = {
    "chat_messages": "the chat",
    "missions": "a message that you sent",
    "session_titles": "a session's title",
    "cards": "a card",
    "stacks": "a stack's name",
    "canvas_changes": "what you did on the canvas",
    "host_rules": "a host that you always allow",
    "host_connections": "a host that the agent connected to",
}

_OF_TURNS = frozenset({"chat_messages", "missions", "session_titles"})


def _left_of(text: SeenText, made: Plan) -> SeenText:
    """Return the new version of a text that users see."""
    value = json.loads(text.text) if text.is_json else text.text
    scrubber = made.at_source if text.owner in made.source_missions else made.scrubber
    # A person's own text goes only if it has the exact words.
    is_of_turn = text.table in _OF_TURNS or (text.table == "cards" and text.row in made.drawn)
    left = map_strings(value, scrubber.sentences if is_of_turn else scrubber.text)
    if left == value:
        return text
    written = json.dumps(left, ensure_ascii=False, separators=(",", ":")) if text.is_json else left
    return replace(text, text=written)


def _goes_whole(text: SeenText, made: Plan) -> bool:
    """Return whether a text is of a turn, card or session that loses everything."""
    return text.owner is not None and text.owner in {*made.emptied_missions, *made.cards, made.session}


def _readable(text: SeenText, content: str) -> str:
    """Return the strings of JSON one per line, without its ids and the names of its kinds."""
    if not text.is_json or not content:
        return content
    found: list[str] = []

    def collect(value: Any) -> None:
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, dict):
            collect([item for key, item in value.items() if key not in _NOT_WORDS])
        elif isinstance(value, list):
            for item in value:
                collect(item)

    collect(json.loads(content))
    return "\n".join(found)


#: The fields of cards, tools and search hits in JSON that name their kind.
_NOT_WORDS = frozenset({"id", "type", "by", "kind", "name", "tool_use_id", "origin"})


def _lines_taken(content: str, made: Plan) -> list[str]:
    """Return the lines of a file that are removed or changed."""
    left = made.scrubber.lines(content, keep=made.typed)
    kept = set(left.split("\n"))
    return (
        [] if left == content else [line.strip() for line in content.split("\n") if line.strip() and line not in kept]
    )


def _below(folder: Path) -> Iterator[Path]:
    """Yield every file below a folder; files that vanish meanwhile are skipped."""
    for parent, _, names in os.walk(folder):
        yield from (Path(parent, name) for name in names)


def _read(path: Path, most: int = -1) -> str:
    try:
        with path.open("rb") as stream:
            return stream.read(most).decode("utf-8", errors="replace")
    except OSError:
        return ""


def _has(path: Path, scrubber: Scrubber) -> bool:
    return _names(_read(path).replace("\\n", "\n").replace('\\"', '"'), scrubber)


def _names(text: str, scrubber: Scrubber) -> bool:
    # A word of a turn is in no other turn; a learning's words may be anybody's.
    return scrubber.finds(text) or (bool(scrubber.turns) and scrubber.has_own(text.replace("_", " ")))


log = logging.getLogger(__name__)

#: More turns than this need a confirmation.
MANY_TURNS = 10
#: Places listed in a result; the others are counted.
MOST_PLACES = 200


class Forgetter:
    """Forget for a person, in a workspace that this process owns and in which nothing runs."""

    def __init__(
        self,
        settings: Settings,
        transcript: TranscriptDB,
        memory: MemoryDB,
        workspace: WorkspaceDB,
        projection: Projection,
        tell_store: Callable[[], Awaitable[None]],
        forget_vectors: Callable[[Collection[int] | None], Awaitable[None]],
        step: Step = lambda: None,
    ) -> None:
        """`forget_vectors` deletes what search by meaning derived from turns, or from all. See `steps` for `step`."""
        self._settings = settings
        self._transcript = transcript
        self._memory = memory
        self._workspace = workspace
        self._projection = projection
        self._tell_store = tell_store
        self._forget_vectors = forget_vectors
        self._step = step
        self._theirs = TheirFiles(settings)
        self._derived = MemoryStore(memory, MemoryFiles(settings.memory))
        #: In the order of removal.
        self._sources: tuple[SourceStore, ...] = (
            SeenStore(workspace),
            ChangesStore(settings, workspace),
            FileStore(settings),
            LogStore(settings, transcript, memory, step),
        )

    async def steps(self, target: Target, *, preview: bool) -> tuple[int, int]:
        """Return (number of turns, number of steps that a forget or its preview takes)."""
        turns, _, _ = await self._transcript.counts()
        return turns, turns * (PASSES[target.by] + (0 if preview else 1))

    async def preview(self, target: Target) -> Forgotten:
        """Return the effects of a forget, in numbers and words, without changes."""
        made = await plan(target, self._transcript, self._memory, self._step)
        gone = await self._find(made, *self._sources, self._derived)
        self._refuse_nothing(made, gone)
        return self._told(made, gone=gone)

    async def forget(self, target: Target, *, sure: bool) -> Forgotten:
        """Forget, then search every local store. Return what was removed, and each place that still has it.

        The caller waits for the replica at the bridge. PeerError if nothing matches, or if it is too much without
        `sure`.
        """
        # An edit between the plan and the write would restore the forgotten text.
        async with self._projection.held() as settle:
            # Log manual changes on disk first, or they would later count as the person's own text.
            await settle()
            made = await plan(target, self._transcript, self._memory, self._step)
            if not made.observations and not made.curations:
                self._refuse_nothing(made, await self._find(made, *self._sources))
            if len(made.observations) > MANY_TURNS and not sure:
                raise PeerError(
                    f"That would forget {len(made.observations)} turns. If you are sure, say so (--yes).",
                    code="too_much",
                )
            # Ctrl-C before this leaves everything; from here on it waits until everything is gone.
            await to_its_end(self._remove(made, settle), name="forget")
        found = await self._find(made, *self._sources, self._derived, self._theirs)
        return self._told(made, still=[*found, *await self._says_it_too(made)])

    async def _remove(self, made: Plan, settle: Callable[[], Awaitable[object]]) -> None:
        (self._settings.run / MARKER).touch()
        for store in self._sources:
            await store.remove(made)
        await self._forget_vectors(made.observations.keys())
        await self._finish(settle)

    async def finish_interrupted(self) -> None:
        """Complete an interrupted forget."""
        if (self._settings.run / MARKER).exists():
            log.warning("a forget was cut off and is finished now")
            async with self._projection.held() as settle:
                # The marker does not name the turns.
                await self._forget_vectors(None)
                await self._finish(settle)

    async def _finish(self, settle: Callable[[], Awaitable[object]]) -> None:
        await settle()
        # The replica must forget it, too. Once this is recorded, no crash can lose it.
        await self._tell_store()
        await self._transcript.purge()
        await self._memory.purge()
        await self._workspace.purge()
        (self._settings.run / MARKER).unlink(missing_ok=True)

    @staticmethod
    async def _find(made: Plan, *stores: Store) -> list[Place]:
        return list(dict.fromkeys([place for store in stores for place in await store.find(made)]))

    @staticmethod
    def _refuse_nothing(made: Plan, found: list[Place]) -> None:
        if not found and not made.observations and not made.curations:
            raise PeerError("Nothing in memory matches that.", code="not_found")

    async def _says_it_too(self, made: Plan) -> list[Place]:
        """Return the learnings that stay but contain the phrases."""
        return [
            Place(f"learning {row.id}, which says more", row.content)
            for row in await self._memory.learnings(limit=2**31)
            if made.scrubber.stands_in(row.content)
        ]

    def _told(self, made: Plan, *, gone: Sequence[Place] = (), still: Sequence[Place] = ()) -> Forgotten:
        return Forgotten(
            **made.summary(),
            remains=self._theirs.deployed(made.scrubber),
            gone=list(gone[:MOST_PLACES]),
            more=max(0, len(gone) + len(still) - MOST_PLACES),
            still=list(still[:MOST_PLACES]),
        )
