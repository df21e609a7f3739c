"""Curations -> memory.db and the four curated files: a pure fold that calls no model.

The same log gives the same rows, ids and times, whenever and however often it is replayed. Each curation
is applied in one transaction with the cursor; files follow by atomic rename, and a crash between the two is
repaired by the next `settle`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from sprite.database.connection import LARGEST_ROW_ID
from sprite.database.curations import Curation
from sprite.database.memory import MemoryDB
from sprite.database.transcript import TranscriptDB
from sprite.errors import PeerError
from sprite.memory.files import CURATED, MemoryFiles, over_limit, over_together, sha256, template
from sprite.memory.projection.fold import ACTION_STATUSES, Change, fold, turns_needed

log = logging.getLogger(__name__)


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

    @asynccontextmanager
    async def held(self) -> AsyncIterator[Callable[[], Awaitable[list[Change]]]]:
        """Holds edits off while the block runs; yields what settles inside it."""
        async with self._lock:
            yield self._settle

    async def edit(self, name: str, content: str, base: int | None = None) -> list[Change]:
        """A person's new content for a curated file: logged, then applied. PeerError if it may not be.

        `base` is the version that was edited: another one by now is a conflict.
        """
        if name not in CURATED:
            raise PeerError(f"{name[:80]!r} cannot be edited here; curated files are {', '.join(CURATED)}.")
        if reason := over_limit(name, content):
            raise PeerError(f"Not saved: {reason}.", code="over_limit")
        async with self._lock:
            # What a hand has written meanwhile comes first, or it would pass for newer than this edit.
            changes = await self._settle()
            if reason := over_together(name, content, {other: self._files.read(other) for other in CURATED}):
                raise PeerError(f"Not saved: {reason}. Shorten one of them first.", code="over_limit")
            latest = await self._memory.latest_version(name)
            if base is not None and base != (latest.version if latest else 0):
                raise PeerError(
                    f"{name} has changed since you opened it: look at the newest version first.", code="conflict"
                )
            await self._transcript.curations.append_edit({"name": name, "content": content})
            return changes + await self._settle()

    async def resolve_action(self, action_id: int, status: str) -> list[Change]:
        """A person's word on an action: logged, then applied. PeerError for an unknown one."""
        if status not in ACTION_STATUSES:
            raise PeerError("An action's status is pending, completed or dismissed.")
        if all(action.id != action_id for action in await self._memory.actions()):
            raise PeerError(f"There is no action {action_id}.", code="not_found")
        async with self._lock:
            await self._transcript.curations.append_edit({"action_id": action_id, "status": status})
            return await self._settle()

    async def retry(self, turn_id: int) -> list[Change]:
        """Puts a quarantined turn back to those that wait. PeerError if it is not quarantined."""
        _, generation = await self._transcript.curations.activation()
        async with self._lock:
            if not await self._transcript.quarantine.retry(turn_id, generation):
                raise PeerError(f"Turn {turn_id} is not quarantined.", code="not_found")
            return await self._settle()

    async def _settle(self) -> list[Change]:
        changes = await self._apply_all()
        if await self._log_hand_edits():
            changes += await self._apply_all()
        await self.write_files()
        return changes

    async def replay(self, on_change: Callable[[Change], None], *, until: int = LARGEST_ROW_ID) -> None:
        """Applies what is above the cursor, one curation after another, up to one and with it; touches no file."""
        cursor = await self._memory.settled_cursor()
        activation, generation = await self._transcript.curations.activation(until)
        # Begun anew where rows below the cursor have changed: words were forgotten, or another extraction took over.
        if cursor < activation or (cursor and await self._transcript.curations.forgotten_after(cursor)):
            await self._memory.start_over()
            cursor = 0
        if cursor < activation:
            for curation in await self._transcript.curations.extraction(generation, activation):
                # The cursor stays at the beginning until all of it is in: cut off, it is begun anew.
                on_change(await self.apply(curation, cursor=0))
            await self._memory.move_cursor(activation)
        while curations := await self._transcript.curations.fold(await self._memory.cursor(), until, generation):
            for curation in curations:
                on_change(await self.apply(curation, cursor=curation.id))

    async def _apply_all(self) -> list[Change]:
        changes: list[Change] = []
        await self.replay(changes.append)
        return changes

    async def apply(self, curation: Curation, *, cursor: int) -> Change:
        """Applies one curation in one transaction that leaves the cursor there: one hop to the database's thread.

        Once begun it runs to its end, also where the caller is cancelled: a `replay` waits for it there.
        """
        needed = turns_needed(curation)
        turns = await self._transcript.observations_between(*needed) if needed else []
        return await self._memory.apply(lambda tx: fold(tx, curation, turns), cursor=cursor)

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
            await self._transcript.curations.append_edit({"name": name, "content": content, "source": "disk"})
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

    async def write_files(self) -> None:
        """Writes the curated files as memory.db has them, each in one step."""
        for name in CURATED:
            latest = await self._memory.latest_version(name)
            written = await self._memory.written(name)
            if latest is None:
                # As shipped. A mark is left only where a forget has taken every version away.
                if written is not None or not self._files.exists(name):
                    self._files.write(name, template(name))
                    await self._memory.mark_written(name, None)
                continue
            if not self._files.exists(name) or self._files.read(name) != latest.content:
                self._files.write(name, latest.content)
            if written != latest.sha256:
                await self._memory.mark_written(name, latest.sha256)
