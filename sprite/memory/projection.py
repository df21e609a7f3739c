"""Fold logged decisions into memory.db and the four curated files, without a model or guards.

The same log gives the same rows, ids and times. Each curation and the cursor are one transaction. Files follow by
atomic rename; after a crash in between, the next `settle` repairs them. `hand_changes.py` handles manual changes.
"""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

import msgspec

from sprite.common.sqlite import LARGEST_ROW_ID
from sprite.errors import PeerError, SpriteError
from sprite.log.curations import Curation, Drift, append, what_happened
from sprite.log.transcript import TranscriptDB
from sprite.memory.action_rows import AnyRecord, Changed
from sprite.memory.answers import Answer, Op, answered, decide_change
from sprite.memory.database import MemoryDB
from sprite.memory.decision import DECIDED, Change, Fold, Written, in_order, read_decision
from sprite.memory.files import BOOT_ORDER, CURATED, DEPLOYED, MemoryFiles, over_limit, over_together, template
from sprite.memory.hand_changes import HandChanges, held_back, in_memory
from sprite.memory.rule_rows import Offer, Record, fold_rule


def fold(tx: sqlite3.Connection, curation: Curation) -> Change:
    """Apply one curation of the log to memory.db."""
    folding = Fold(tx, curation)
    try:
        if curation.decision_json is not None or curation.kind in {"batch", *DECIDED}:
            for part in read_decision(curation.decision_json or ""):
                folding.put(part)
        elif curation.kind == "edit":
            _fold_edit(folding)
        elif curation.kind == "rule":
            fold_rule(folding, curation)
        elif curation.kind not in {"forget", "quarantine", "drift", "undo"}:
            # A newer Sprite may have written it. Report it and go on.
            folding.refuse("unknown_kind", f"a curation of kind {curation.kind[:40]!r}")
    except (PeerError, ValueError, KeyError, TypeError, RecursionError):
        # One damaged row must not stop memory. Report it and go on.
        words = "an edit" if curation.kind == "edit" else f"a curation of kind {curation.kind!r}"
        folding.refuse("damaged", f"{words} could not be read")
    return folding.change()


def _fold_edit(folding: Fold) -> None:
    """Apply a person's logged edit to memory.db. Raise ValueError, KeyError or TypeError if it is damaged."""
    edit = json.loads(folding.curation.response)
    name, content = edit["name"], edit["content"]
    if name not in CURATED:
        raise ValueError(f"{name!r} is no curated file")
    if not isinstance(content, str):
        raise TypeError("the content is no text")
    folding.put(Written(name, content, by="person"))
    # A person may exceed a limit, a curator may not.
    if isinstance(over := edit.get("over"), str):
        folding.refuse("over_limit", f"{over}; a person wrote it so, and it stands")


log = logging.getLogger(__name__)


class Projection:
    """Keep memory.db and the curated files up to date with the log. `tell` shows people notes about files."""

    def __init__(
        self,
        transcript: TranscriptDB,
        memory: MemoryDB,
        files: MemoryFiles,
        tell: Callable[[str], None] = lambda _words: None,
    ) -> None:
        self._transcript = transcript
        self._memory = memory
        self.files = files
        self._hands = HandChanges(transcript, memory, files, tell)
        #: Held while anything changes memory.
        self.lock = asyncio.Lock()
        #: Fingerprint of the files at the last complete update.
        self._settled: tuple[object, ...] | None = None

    async def settle(self) -> list[Change]:
        """Bring memory up to date: manual edits into the log, the log into memory.db, then memory.db into files.

        Safe at any time and after any crash. Returns the changes, one per curation.
        """
        async with self.lock:
            return await self.settle_held()

    async def edit(self, name: str, content: str, base: int | None = None) -> list[Change]:
        """Log and apply a person's new content of a curated file. PeerError if refused, or if `base` is outdated."""
        if name not in CURATED:
            raise PeerError(f"{name[:80]!r} cannot be edited; the curated files are {', '.join(CURATED)}.")
        if reason := over_limit(name, content):
            raise PeerError(f"Not saved: {reason}.", code="over_limit")
        async with self.lock:
            # Log a manual change on disk first, or it would seem newer than this edit.
            changes = await self.settle_held()
            if name in self._hands.drift:
                raise PeerError(f"{what_happened(name)}: accept or reject that change first.", code="drift")
            if reason := over_together(name, content, {other: self.files.read(other) for other in CURATED}):
                raise PeerError(f"Not saved: {reason}. Shorten one of them first.", code="over_limit")
            latest = await self._memory.latest_version(name)
            if base is not None and base != (latest.version if latest else 0):
                raise PeerError(
                    f"{name} has changed since you opened it: look at the newest version first.", code="conflict"
                )
            await self._transcript.curations.append_said("edit", {"name": name, "content": content})
            return changes + await self.settle_held()

    async def accept(self, name: str, seen: int | None = None) -> list[Change]:
        """Accept a file's edit on disk for a person: log it as the person's own edit, and apply it.

        `seen` is the curation of the drift that they saw, by default the newest one shown. If it is outdated, the
        decision is a conflict.
        """
        return await self._decide(name, seen, self._hands.accept)

    async def reject(self, name: str, seen: int | None = None) -> list[Change]:
        """Reject a file's edit on disk for a person: log the rejection, and restore the file."""
        return await self._decide(name, seen, self._hands.reject)

    async def _decide(self, name: str, seen: int | None, decide: Callable[[Drift], Awaitable[None]]) -> list[Change]:
        async with self.lock:
            if seen is None:
                shown = (await self._transcript.curations.open_drift()).get(name)
                seen = None if shown is None else shown.curation_id
            changes = await self.settle_held()
            drift = self._hands.waiting(name)
            if drift.curation_id != seen:
                raise PeerError(f"{name} has changed again: look at the new change first.", code="conflict")
            await decide(drift)
            return changes + await self.settle_held()

    # --- the agent at work ---

    async def agent_begins(self) -> list[Change]:
        """Record that the agent begins to work. Earlier changes on disk count as the person's, later ones do not."""
        async with self.lock:
            changes = await self._settle_changed()
            self.files.note_work({name: self.files.read(name) for name in DEPLOYED})
            self.files.hold({name: self.files.read(name) for name in BOOT_ORDER})
            return changes

    async def agent_rests(self) -> list[Change]:
        """Record that the agent has stopped working. File changes since it began wait for a person's decision."""
        async with self.lock:
            changes = await self._settle_changed()
            self.files.note_rest()
            self.files.hold({name: self.files.read(name) for name in self._hands.drift})
            return changes

    async def _settle_changed(self) -> list[Change]:
        # This runs at each begin and end of a turn. Without a changed file, it does no database work.
        return [] if self.files.state() == self._settled else await self.settle_held()

    async def log_batch(self, decided: Callable[[], Awaitable[Curation]]) -> list[Change]:
        """Bring memory up to date, log the answer that `decided` returns, and apply it. Return all these changes.

        ValueError if any turn of its range is already curated.
        """
        async with self.lock:
            changes = await self.settle_held()
            row = await decided()
            await self._transcript.transact(lambda tx: append(tx, row, is_current=True))
            return changes + await self.settle_held()

    async def log_action(self, ask: Callable[[], Awaitable[AnyRecord | None]]) -> tuple[int | None, list[Change]]:
        """Settle, log and apply the action change that `ask` returns, if any. Return its number and all changes."""
        async with self.lock:
            changes = await self.settle_held()
            if (record := await ask()) is None:
                return None, changes
            turn = record.of.turn if isinstance(record, Changed) and record.of else None
            return await self._log_decided("action", record, turn), changes + await self.settle_held()

    async def answer(self, learning_id: int, op: Op, content: str = "") -> list[Change]:
        """Log and apply a person's answer to a learning. Raise PeerError if there is no such learning."""
        async with self.lock:
            changes = await self.settle_held()
            record = answered(learning_id, await self._memory.learning(learning_id), op, content)
            await self._log_decided("learning", record, record.of.turn)
            return changes + await self.settle_held()

    async def log_rule(self, record: Record) -> tuple[int, list[Change]]:
        """Log and apply an offer of a rule, or an event of one. Return the row's number and all changes."""
        turn = record.rule.turn if isinstance(record, Offer) else None
        row = Curation("rule", msgspec.json.encode(record).decode(), turn, turn)
        async with self.lock:
            logged = await self._transcript.curations.append_event(row)
            return logged.id, await self.settle_held()

    async def _log_decided(self, kind: str, record: AnyRecord | Answer, turn: int | None) -> int:
        """Decide about a change, and log it with the decision; return the row's number."""
        row = Curation(kind, msgspec.json.encode(record).decode(), turn, turn, created_at=time.time())
        parts = await self._memory.transact(lambda tx: decide_change(Fold(tx, row)), is_kept=False)
        row = replace(row, decision_json=msgspec.json.encode(parts).decode())
        return (await self._transcript.curations.append_event(row)).id

    async def retry(self, turn_id: int) -> list[Change]:
        """Let the curator try a quarantined turn again. Raise PeerError if the turn is not quarantined."""
        _, generation = await self._transcript.curations.activation()
        async with self.lock:
            if not await self._transcript.quarantine.retry(turn_id, generation):
                raise PeerError(f"Turn {turn_id} is not set aside.", code="not_found")
            return await self.settle_held()

    async def settle_held(self) -> list[Change]:
        """Bring memory up to date while the caller holds `lock`."""
        changes = await self._apply_all()
        if await self._hands.log():
            changes += await self._apply_all()
        await self.write_files()
        held = await held_back(self._memory, self._hands.drift)
        if (before := self.files.before_work()) is not None:
            held = {**before, **{name: await in_memory(self._memory, name) for name in CURATED}, **held}
        self.files.hold(held)
        self._settled = self.files.state()
        return changes

    async def replay(self, on_change: Callable[[Change], object], *, until: int = LARGEST_ROW_ID) -> None:
        """Apply the curations after the cursor, up to and including `until`. Files are not touched."""
        cursor = await self._memory.settled_cursor()
        activation, generation = await self._transcript.curations.activation(until)
        # Start over if rows below the cursor changed: words were forgotten, or another extraction took over.
        if cursor < activation or (cursor and await self._transcript.curations.newest_forget(cursor)):
            await self._memory.start_over()
            cursor = 0
        if cursor < activation:
            (activated,) = await self._transcript.curations.after(activation - 1, 1)
            answers = await self._transcript.curations.extraction(generation, activation)
            changes = await self._transcript.curations.peoples_changes(activation)
            rules = await self._transcript.curations.rules(activation)
            for curation in [*in_order(answers, changes), *rules, *in_order([activated], changes)]:
                # The cursor stays at 0 until all is applied, so an interrupted run begins again.
                on_change(await self.apply(curation, cursor=activation if curation is activated else 0))
        while curations := await self._transcript.curations.fold(await self._memory.cursor(), until, generation):
            for curation in curations:
                on_change(await self.apply(curation, cursor=curation.id))
        if (mark := await self._transcript.mark(await self._memory.cursor())) != await self._memory.log_seen():
            await self._memory.note_log(mark)

    async def _apply_all(self) -> list[Change]:
        changes: list[Change] = []
        await self.replay(changes.append)
        return changes

    async def apply(self, curation: Curation, *, cursor: int) -> Change:
        """Apply one curation to memory.db and set its cursor, in one transaction and one hop to the database thread.

        The transaction completes even if the caller is cancelled; a later `replay` waits for it on that thread.
        """
        return await self._memory.apply(lambda tx: fold(tx, curation), cursor=cursor)

    # --- files ---

    async def write_files(self) -> None:
        """Write each curated file as memory.db has it, atomically. Files with an undecided edit stay.

        Manual changes since the last check also stay: the next `settle` logs them.
        """
        recorded = await self._hands.recorded()
        for name in CURATED:
            if (drift := self._hands.drift.get(name)) is not None:
                if not self.files.exists(name):
                    self.files.write(name, drift.content)
                continue
            if self.files.exists(name) and not await self._hands.knows(name, self.files.on_disk(name), recorded):
                continue
            latest = recorded.latest.get(name)
            written = recorded.written.get(name)
            if latest is None:
                # The shipped version. A mark exists only if a forget removed every version.
                if written is not None or not self.files.exists(name):
                    self.files.write(name, template(name))
                    await self._memory.mark_written(name, None)
                continue
            if not self.files.exists(name) or self.files.on_disk(name) != latest.content:
                self.files.write(name, latest.content)
            if written != latest.sha256:
                await self._memory.mark_written(name, latest.sha256)


#: The id of a turn in `AgentWatch`; background work has other ids.
TURN = "turn"


class AgentWatch:
    """Track when the agent works, and report the beginning and the end of its work to the projection.

    Without a sandbox, a detached program cannot be tracked. The agent then counts as working from its first turn to
    the end of the session (`whole_session`).
    """

    def __init__(self, projection: Projection, on_change: Callable[[Change], None], *, whole_session: bool) -> None:
        self._projection = projection
        self._on_change = on_change
        self._whole_session = whole_session
        self._under_way: set[str] = set()
        self._is_noted = False
        self._one_at_a_time = asyncio.Lock()

    async def begins(self, what: str = TURN) -> None:
        """Register a turn, or background work by its id, before the agent acts in it."""
        self._under_way.add(what)
        await self._note()

    async def ends(self, what: str = TURN) -> None:
        """Unregister a turn or background work that has ended."""
        if not self._whole_session:
            self._under_way.discard(what)
            await self._note()

    async def stops(self) -> None:
        """Unregister all work, because the agent's process is gone."""
        self._under_way.clear()
        await self._note()

    async def _note(self) -> None:
        async with self._one_at_a_time:
            works = bool(self._under_way)
            if works == self._is_noted:
                return
            try:
                changes = await (self._projection.agent_begins() if works else self._projection.agent_rests())
            except SpriteError as error:
                # A full disk must not end the agent's turn. The check at the end of the next turn covers later changes.
                log.warning("memory's files are not watched: %s", error)
                return
            self._is_noted = works
        for change in changes:
            self._on_change(change)
