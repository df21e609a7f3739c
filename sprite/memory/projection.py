"""Curations -> memory.db and the four curated files: a pure fold that calls no model.

The same log gives the same rows, ids and times, whenever and however often it is replayed. Each curation
is applied in one transaction with the cursor; files follow by atomic rename, and a crash between the two is
repaired by the next `settle`.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from sprite.database.memory import MemoryDB, NewLearning, Projected
from sprite.database.transcript import Curation, Observation, TranscriptDB
from sprite.errors import PeerError
from sprite.memory.curator import ParsedLearning, parse_response
from sprite.memory.evidence import weigh
from sprite.memory.files import CURATED, MemoryFiles, over_limit, sha256, template

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Change:
    """What one curation changed: the files rewritten, and the ids of the learnings added."""

    curation_id: int
    files: list[str] = field(default_factory=list)
    learnings: list[int] = field(default_factory=list)


class Projection:
    """Keeps memory.db and the files up to the log's end."""

    def __init__(self, transcript: TranscriptDB, memory: MemoryDB, files: MemoryFiles) -> None:
        self._transcript = transcript
        self._memory = memory
        self._files = files
        self._lock = asyncio.Lock()

    async def settle(self) -> list[Change]:
        """Brings everything up to date: hand edits into the log, the log into memory.db, that into files.

        Safe to be called at any time and after any crash; returns what changed, curation by curation.
        """
        async with self._lock:
            return await self._settle()

    async def edit(self, name: str, content: str) -> list[Change]:
        """A person's new content for a curated file: logged, then applied. PeerError if it may not be."""
        if name not in CURATED:
            raise PeerError(f"{name[:80]!r} cannot be edited here; curated files are {', '.join(CURATED)}.")
        if reason := over_limit(name, content):
            raise PeerError(f"Not saved: {reason}.", code="over_limit")
        async with self._lock:
            # What a hand has written meanwhile comes first, or it would pass for newer than this edit.
            changes = await self._settle()
            await self._transcript.append_edit({"name": name, "content": content})
            return changes + await self._settle()

    async def resolve_action(self, action_id: int, status: str) -> list[Change]:
        """A person's word on an action: logged, then applied. PeerError for an unknown one."""
        if status not in {"pending", "completed", "dismissed"}:
            raise PeerError("An action's status is pending, completed or dismissed.")
        if all(action.id != action_id for action in await self._memory.actions()):
            raise PeerError(f"There is no action {action_id}.", code="not_found")
        async with self._lock:
            await self._transcript.append_edit({"action_id": action_id, "status": status})
            return await self._settle()

    async def _settle(self) -> list[Change]:
        changes = await self._apply_all()
        if await self._log_hand_edits():
            changes += await self._apply_all()
        await self._write_files()
        return changes

    async def replay(self, on_change: Callable[[Change], None]) -> None:
        """Applies what is above the cursor, one curation after another; touches no file."""
        while curations := await self._transcript.curations_after(await self._memory.cursor()):
            for curation in curations:
                on_change(await self._apply(curation))

    async def _apply_all(self) -> list[Change]:
        changes: list[Change] = []
        await self.replay(changes.append)
        return changes

    async def _apply(self, curation: Curation) -> Change:
        change = Change(curation.id)
        async with self._memory.applying(curation.id) as tx:
            if curation.kind == "batch":
                await self._apply_batch(tx, curation, change)
            elif curation.kind == "edit":
                await self._apply_edit(tx, curation, change)
            else:
                await tx.report(curation.id, "unknown_kind", f"a curation of kind {curation.kind!r}")
        return change

    # --- a batch ---

    async def _apply_batch(self, tx: Projected, curation: Curation, change: Change) -> None:
        turns = await self._transcript.observations_between(
            curation.first_observation_id or 0, curation.last_observation_id or 0
        )
        response = parse_response(curation.response)
        for learning in response.learnings:
            await self._learn(tx, curation, change, learning, turns)
        for name, content in response.files.items():
            if reason := over_limit(name, content):
                await tx.report(curation.id, "file_refused", f"{reason}; the old file stays")
            else:
                await _add_version(tx, curation, change, name, content, source="curator")
        for line in response.unparsed:
            await tx.report(curation.id, "unparsed", line[:200])

    async def _learn(
        self,
        tx: Projected,
        curation: Curation,
        change: Change,
        learning: ParsedLearning,
        turns: list[Observation],
    ) -> None:
        evidence = weigh(learning, turns)
        if evidence.type != learning.type:
            await tx.report(
                curation.id,
                "type_lowered",
                f"a {learning.type} that the person did not say became a {evidence.type}",
            )
        same = await tx.same_learning(evidence.type, learning.content)
        if same is not None:
            await tx.count_again(same, curation.created_at)
            learning_id = same
        else:
            learning_id = await tx.add_learning(
                NewLearning(
                    created_at=curation.created_at,
                    session_id=evidence.turn.session_id if evidence.turn else None,
                    type=evidence.type,
                    content=learning.content,
                    source_observation_id=evidence.turn.id if evidence.turn else None,
                    confidence=evidence.confidence,
                    curation_id=curation.id,
                    origin=evidence.origin,
                    evidence=evidence.quote,
                )
            )
            change.learnings.append(learning_id)
            if evidence.type == "ACTION":
                await tx.add_action(learning.content, learning_id, curation.created_at)
        # Only the person's word may retire what is known.
        if evidence.origin == "user":
            for replaced in learning.supersedes:
                await tx.supersede(replaced, learning_id)

    # --- a person's edit ---

    async def _apply_edit(self, tx: Projected, curation: Curation, change: Change) -> None:
        try:
            edit = json.loads(curation.response)
            if "action_id" in edit:
                await tx.resolve_action(int(edit["action_id"]), str(edit["status"]))
            else:
                await _add_version(tx, curation, change, str(edit["name"]), str(edit["content"]), source="person")
        except (ValueError, KeyError, TypeError) as error:
            # One damaged row must not stop memory: it is said, and the rest is applied.
            await tx.report(curation.id, "damaged", f"an edit could not be read: {error}")

    # --- files ---

    async def _log_hand_edits(self) -> bool:
        """Files that are not what the runtime last wrote were edited by hand: into the log with them."""
        found = False
        for name in CURATED:
            if not self._files.exists(name):
                continue
            content = self._files.read(name)
            if await self._known(name, content):
                continue
            log.info("%s was edited by hand", name)
            await self._transcript.append_edit({"name": name, "content": content, "source": "disk"})
            await self._memory.mark_written(name, sha256(content))
            found = True
        return found

    async def _known(self, name: str, content: str) -> bool:
        digest = sha256(content)
        if digest == await self._memory.written(name):
            return True
        # A crash between the rename and its mark, or a rebuilt memory.db that has no marks yet: the file is
        # one that the runtime could have written.
        latest = await self._memory.latest_version(name)
        if latest is None:
            return content == template(name)
        if digest == latest.sha256:
            return True
        if await self._memory.written(name) is not None:
            return False
        return any(digest == version.sha256 for version in await self._memory.versions(name)) or (
            content == template(name)
        )

    async def _write_files(self) -> None:
        for name in CURATED:
            latest = await self._memory.latest_version(name)
            if latest is None:
                if not self._files.exists(name):
                    self._files.write(name, template(name))
                continue
            if not self._files.exists(name) or sha256(self._files.read(name)) != latest.sha256:
                self._files.write(name, latest.content)
            if await self._memory.written(name) != latest.sha256:
                await self._memory.mark_written(name, latest.sha256)


async def _add_version(
    tx: Projected, curation: Curation, change: Change, name: str, content: str, *, source: str
) -> None:
    await tx.add_version(name, content, sha256(content), curation_id=curation.id, at=curation.created_at, source=source)
    change.files.append(name)
