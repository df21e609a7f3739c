"""Forget words in every store, so that a search over the bytes finds nothing.

Every table, column and file belongs to one of the stores: `tests/stores/test_text_stores.py` compares them.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol

from sprite.common.tasks import Breaks, to_its_end
from sprite.config import Settings
from sprite.errors import PeerError
from sprite.forget.decisions import scrub_decisions, scrub_verifications
from sprite.forget.plan import PASSES, Plan, Step, Target, all_rows, plan, survey
from sprite.forget.scrub import Scrubber, map_strings
from sprite.log.transcript import TranscriptDB
from sprite.memory.database import MemoryDB
from sprite.memory.files import CURATED, DEPLOYED
from sprite.memory.folders import refuse_links
from sprite.memory.projection import Projection
from sprite.memory.rule_rows import all_rules
from sprite.protocol.shapes import Forgotten, Place
from sprite.undo.contents import Contents
from sprite.workspace.database import SeenText, WorkspaceDB
from sprite.workspace.user_files import is_there

#: Limits for searching the user's own files, which are never changed.
_LARGEST_SEARCHED, _MOST_SEARCHED, _MOST_FILES = 1024 * 1024, 64 * 1024 * 1024, 20_000


class Store(Protocol):
    """A database or folder with people's words or data derived from them, from which a forget removes text."""

    name: ClassVar[str]

    async def find(self, made: Plan, /) -> list[Place]:
        """Return the places of text that `remove` would remove; afterwards (`made.is_done`), of what it left over."""

    async def remove(self, made: Plan, /) -> None:
        """Remove the forgotten text from this store."""


class SeenStore:
    """Forget in workspace.db: chat, inbox, canvas and events."""

    name: ClassVar = "the chat and the canvas"

    def __init__(self, workspace: WorkspaceDB) -> None:
        self._workspace = workspace

    async def find(self, made: Plan) -> list[Place]:
        """See Store."""
        places = Plan("", Scrubber(), Scrubber())
        whole = {*made.emptied_missions, *made.cards, made.session} - {None}
        for text in await self._workspace.texts():
            lost = "" if text.owner in whole else _left_of(text, made).text
            if lost != text.text:
                places.say(_SHOWN_AS[text.table], _readable(text, text.text), _readable(text, lost))
        return list(places.places)

    async def remove(self, made: Plan) -> None:
        """See Store."""
        rewritten = [left for text in await self._workspace.texts() if (left := _left_of(text, made)) != text]
        await self._workspace.forget(made.emptied_missions, made.cards, made.session, rewritten)


class ChangesStore:
    """The changed files of turns: their names in workspace.db. `FileStore` searches their contents."""

    name: ClassVar = "a changed file's name"

    def __init__(self, settings: Settings, workspace: WorkspaceDB) -> None:
        self._table = workspace.file_changes
        self._contents = Contents(settings.undo, settings.workspace)

    async def find(self, made: Plan) -> list[Place]:
        """See Store."""
        return [Place(self.name, path) for path in sorted(await self._table.paths()) if _names(path, made.scrubber)]

    async def remove(self, made: Plan) -> None:
        """See Store."""
        await self._table.forget(made.emptied_missions, lambda path: _names(path, made.scrubber))
        # Contents that only a forgotten turn had.
        await asyncio.to_thread(self._contents.sweep, await self._table.wanted())


class FileStore:
    """All other files below `.os/`: of the CLI, the loader and the follower, and quarantined copies."""

    name: ClassVar = "a file of the program's"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    async def find(self, made: Plan) -> list[Place]:
        """See Store."""
        workspace = self._settings.workspace
        having = await asyncio.to_thread(lambda: list(self._having(made)))
        return [Place(self.name, str(path.relative_to(workspace))) for path in having]

    async def remove(self, made: Plan) -> None:
        """See Store."""
        await asyncio.to_thread(self._sweep, made)

    def _files(self) -> Iterator[Path]:
        for path in _below(self._settings.system):
            if path.is_file() and not path.is_symlink() and not self._keeps(path):
                yield path

    def _having(self, made: Plan) -> Iterator[Path]:
        for path in self._files():
            # `MemoryStore` handles the curated files.
            is_memorys = path.parent == self._settings.memory and path.name in CURATED
            if not is_memorys and _has(path, made.scrubber):
                yield path

    def _sweep(self, made: Plan) -> None:
        # The CLI's logs serve to resume a conversation, which must not happen with forgotten words in it. The last boot
        # prompt and the boot files contain the old memory, and a backup the old log. An interrupted rebuild leaves a
        # complete memory.db.
        settings = self._settings
        refuse_links(settings)
        settings.boot_prompt.unlink(missing_ok=True)
        rebuilds = (settings.run / "re-extract", *settings.run.glob("reapply-*"))
        for folder in (settings.cli_state, settings.boot_files, settings.backup, *rebuilds):
            shutil.rmtree(folder, ignore_errors=True)
        for path in self._files():
            derived = path.parent == self._settings.memory
            if derived or _has(path, made.scrubber):
                path.unlink(missing_ok=True)

    def _keeps(self, path: Path) -> bool:
        """Return whether this store must leave a file: a database, or a file without memory's text, such as a lock."""
        settings = self._settings
        # Files that guard or identify the running process.
        left_alone = {settings.lock.name, settings.token_file.name, settings.address_file.name, MARKER}
        programs = (settings.system / "src", settings.system / ".venv")
        databases = (settings.transcript_db, settings.memory_db, settings.workspace_db, settings.vectors_db)
        return (
            path.name in left_alone
            or any(path.is_relative_to(folder) for folder in programs)
            or (path.parent == settings.memory and path.name in DEPLOYED)
            # A journal has its database's name. A quarantined copy has a longer name and is deleted.
            or path.with_name(re.sub("-(wal|shm)$", "", path.name)) in databases
        )


class LogStore:
    """transcript.db: turns, answers, edits, the journal of an interrupted turn, and file names."""

    name: ClassVar = "the log"

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
        names = [path for path in await self._transcript.user_files.names() if _names(path, made.scrubber)]
        decisions = await scrub_decisions(again, self._transcript)
        verifications = await scrub_verifications(again, self._transcript, decisions)
        decided = (decisions.keys() | verifications.keys()) - again.curations.keys()
        return [
            *again.places,
            *(Place(self.name, f"what was decided about entry {row}") for row in decided),
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
        await log.forget(list(made.observations.values()), made.curations, decisions, verifications, made.summary())
        made.is_done = True


class MemoryStore:
    """Forget in memory.db and the curated files, which derive from the log."""

    name: ClassVar = "memory"

    def __init__(self, memory: MemoryDB, projection: Projection) -> None:
        self._memory = memory
        self._projection = projection
        self._files = projection.files

    async def find(self, made: Plan) -> list[Place]:
        """See Store."""
        found = [*await self._learnings(made.scrubber), *await self._rows(made.scrubber)]
        for name in CURATED:
            found += await self._lines(name, made)
        return list(dict.fromkeys(found))

    async def remove(self, _: Plan) -> None:
        """Fold the changed log again. The caller holds the projection."""
        await self._projection.settle_held()

    async def _learnings(self, scrubber: Scrubber) -> list[Place]:
        found: list[Place] = []
        async for row in all_rows(self._memory.learnings):
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
        found += [
            Place("a rule", rule.words)
            for rule in await all_rules(self._memory)
            if any(scrubber.finds(text) for text in (rule.words, rule.reason, rule.quote))
            or any(scrubber.finds(text) for each in rule.examples for text in each.input.values())
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


class StayingStore:
    """Text that a forget finds but leaves: deployed files, the person's own files, and learnings that say more."""

    name: ClassVar = "a file of yours, which stays"

    def __init__(self, settings: Settings, memory: MemoryDB, projection: Projection) -> None:
        self._settings = settings
        self._memory = memory
        self._files = projection.files

    async def find(self, made: Plan) -> list[Place]:
        """See Store."""
        scrubber = made.scrubber
        deployed = [name for name in DEPLOYED if self._files.exists(name) and scrubber.finds(self._files.on_disk(name))]
        return [
            *(Place(name, "a file with the agent's rules, which only you can change") for name in deployed),
            *await asyncio.to_thread(lambda: list(self._own(scrubber))),
            *(
                Place(f"learning {row.id}, which says more", row.content)
                for row in await self._memory.learnings(limit=2**31)
                if scrubber.stands_in(row.content)
                and not scrubber.takes_learning(row.content, row.source_observation_id)
            ),
        ]

    async def remove(self, _: Plan) -> None:
        """Do nothing: only the text's owner may change it."""

    def _own(self, scrubber: Scrubber) -> Iterator[Place]:
        left, workspace = _MOST_SEARCHED, self._settings.workspace
        own = (path for path in sorted(workspace.iterdir()) if path != self._settings.system)
        folders = (path for path in own if not path.is_symlink())
        paths = (found for folder in folders for found in ([folder] if folder.is_file() else _below(folder)))
        for _, path in zip(range(_MOST_FILES), paths, strict=False):
            if path.is_symlink() or not path.is_file() or left <= 0:
                continue
            content = _read(path, _LARGEST_SEARCHED)
            left -= len(content)
            if scrubber.finds(content):
                yield Place(self.name, str(path.relative_to(workspace)))


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
    """Return a text from workspace.db without the forgotten words."""
    value = json.loads(text.text) if text.is_json else text.text
    scrubber = made.at_source if text.owner in made.source_missions else made.scrubber
    # A person's own text goes only if it has the exact words.
    is_of_turn = text.table in _OF_TURNS or (text.table == "cards" and text.row in made.drawn)
    left = map_strings(value, scrubber.sentences if is_of_turn else scrubber.text)
    if left == value:
        return text
    written = json.dumps(left, ensure_ascii=False, separators=(",", ":")) if text.is_json else left
    return replace(text, text=written)


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
    """Forget what a person names, in a workspace that this process owns and in which nothing runs."""

    def __init__(
        self,
        settings: Settings,
        transcript: TranscriptDB,
        memory: MemoryDB,
        workspace: WorkspaceDB,
        projection: Projection,
        following: Sequence[Store | None],
        step: Step = lambda: None,
    ) -> None:
        """`following` are the stores of other packages that derive from the log. `step` is called at each step."""
        self._marker = settings.run / MARKER
        self._transcript = transcript
        self._memory = memory
        self._workspace = workspace
        self._projection = projection
        self._step = step
        #: The stores in the order of removal: first people's own texts, then those that derive from the log.
        self._sources: tuple[Store, ...] = (
            SeenStore(workspace),
            ChangesStore(settings, workspace),
            FileStore(settings),
            LogStore(settings, transcript, memory, step),
        )
        self._derived: tuple[Store, ...] = (MemoryStore(memory, projection), *filter(None, following))
        self._staying: Store = StayingStore(settings, memory, projection)

    @property
    def stores(self) -> tuple[Store, ...]:
        """Every store of a workspace."""
        return (*self._sources, *self._derived, self._staying)

    async def steps(self, target: Target, *, preview: bool) -> tuple[int, int]:
        """Return (number of turns, number of steps that a forget or its preview takes)."""
        turns, _ = await self._transcript.counts()
        return turns, turns * (PASSES[target.by] + (0 if preview else 1))

    async def preview(self, target: Target) -> Forgotten:
        """Return the effects of a forget, in numbers and words, without changes."""
        made = await plan(target, self._transcript, self._memory, self._step)
        gone = await self._find(made, *self._sources, *self._derived)
        self._refuse_nothing(made, gone)
        return _told(made, gone, await self._find(made, self._staying))

    async def forget(self, target: Target, *, sure: bool) -> Plan:
        """Remove a target from every store. PeerError if nothing matches, or for more than MANY_TURNS unless `sure`."""
        # An edit between the plan and the write would restore the forgotten text.
        async with self._projection.lock:
            # Log manual changes on disk first, or they would later count as the person's own text.
            await self._projection.settle_held()
            made = await plan(target, self._transcript, self._memory, self._step)
            if not made.observations and not made.curations:
                self._refuse_nothing(made, await self._find(made, *self._sources))
            if len(made.observations) > MANY_TURNS and not sure:
                raise PeerError(
                    f"This would forget {len(made.observations)} turns. Add --yes to confirm.",
                    code="too_much",
                )
            # Ctrl-C before this leaves everything; from here on it waits until everything is gone.
            await to_its_end(self._remove(made), name="forget")
        return made

    async def search(self, made: Plan) -> Forgotten:
        """Search every store after a forget. Return what was removed, and each place that still has it."""
        return _told(made, [], await self._find(made, *self.stores))

    async def finish_interrupted(self) -> None:
        """Complete an interrupted forget."""
        if self._marker.exists():
            log.warning("a forget was cut off and is finished now")
            async with self._projection.lock:
                # The marker does not name the turns.
                await self._finish(Plan("", Scrubber(), Scrubber()))

    async def _remove(self, made: Plan) -> None:
        # Until the log changes, it has the words to search for, so an interrupted forget can be repeated. The marker
        # makes the next start, or the next forget, finish the stores that follow the log.
        self._marker.touch()
        for store in self._sources:
            await store.remove(made)
        await self._finish(made)

    async def _finish(self, made: Plan) -> None:
        for store in self._derived:
            await store.remove(made)
        await self._transcript.purge()
        await self._memory.purge()
        await self._workspace.purge()
        self._marker.unlink(missing_ok=True)

    @staticmethod
    async def _find(made: Plan, *stores: Store) -> list[Place]:
        return list(dict.fromkeys([place for store in stores for place in await store.find(made)]))

    @staticmethod
    def _refuse_nothing(made: Plan, found: list[Place]) -> None:
        if not found and not made.observations and not made.curations:
            raise PeerError("Nothing in memory matches what you want to forget.", code="not_found")


def _told(made: Plan, gone: Sequence[Place], still: Sequence[Place]) -> Forgotten:
    return Forgotten(
        **made.summary(),
        gone=list(gone[:MOST_PLACES]),
        more=max(0, len(gone) - MOST_PLACES) + max(0, len(still) - MOST_PLACES),
        still=list(still[:MOST_PLACES]),
    )
