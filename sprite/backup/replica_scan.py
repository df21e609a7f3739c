"""Scan what is in no table: memory files, the person's files, and facts about the whole.

Differences from the last scan are written to `ship_rows`, and so replicated like rows of a table.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import time
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from sprite.backup.archive import SCHEMAS, MemoryFile, memory_files
from sprite.backup.replica_files import MOST_FILE_BYTES, FileFacts, Look, Omitted, Seen, known_chunks, look
from sprite.config import Settings
from sprite.log.transcript import TranscriptDB
from sprite.memory.database import MemoryDB
from sprite.storage.changes import ShipState
from sprite.workspace.database import WorkspaceDB
from sprite.workspace.scan import size_in_words

#: The names of the parts on the wire.
FILES: Final = "files"
FOLDERS: Final = "folders"
MEMORY: Final = "memory"
MANIFEST: Final = "manifest"
WRITTEN: Final = "memory/written.jsonl"
OMITTED: Final = "files_left_out"
#: After activity the person's folders are scanned again, but not sooner than the first interval after the last scan,
#: and in any case after the second.
_SOONEST_SECONDS = 2.0
_LATEST_SECONDS = 30.0
#: A scan takes at most one part in this many of the time.
_RARELY = 20

_FILE = msgspec.json.Decoder(FileFacts)


def omitted_in(facts: Mapping[str, str]) -> Omitted:
    """Return the files that are not replicated, from the manifest's rows."""
    return msgspec.json.decode(facts.get(OMITTED, "{}"), type=Omitted)


class Looks:
    """Run the scans of one connection. `shipped` are the recorded files, `changed` those to read."""

    def __init__(self, settings: Settings, state: ShipState, memory: MemoryDB) -> None:
        self.settings = settings
        self.state = state
        self._memory = memory
        self._paths: dict[str, str] = {}
        self._unkept: list[str] = []
        self._looked_at = 0.0
        self._took = 0.0
        #: Zero until the second scan, which follows the backlog of a new connection.
        self._pause = 0.0
        self.shipped: dict[str, FileFacts] = {}
        self.changed: list[tuple[str, Seen]] = []
        #: Chunks that the replica has or is receiving.
        self.known: set[str] = set()

    async def begin(self) -> None:
        """Load the recorded state."""
        rows = await self.state.rows(FILES)
        self.shipped = await asyncio.to_thread(lambda: {name: _FILE.decode(facts) for name, facts in rows.items()})

    async def look_at_memory(self) -> None:
        """Record changes of memory files, and of facts about the whole except the person's files."""
        found = await asyncio.to_thread(memory_files, self.settings)
        await self._note(MEMORY, {name: _json(_facts_of(file)) for name, file in found.items()})
        written = await self._memory.all_written()
        await self._note(WRITTEN, {name: _json({"name": name, "sha256": sha}) for name, sha in written.items()})
        schemas = _json({name: len(schema.migrations) for name, schema in SCHEMAS.items()})
        if (await self.state.rows(MANIFEST)).get("schemas") != schemas:
            await self.state.put(MANIFEST, {"schemas": schemas})

    def is_due(self, active_at: float) -> bool:
        """Return whether to scan the person's files now; the last activity was at `active_at` (monotonic seconds)."""
        passed = time.monotonic() - self._looked_at
        if not self._looked_at or passed > max(_LATEST_SECONDS, self._took * _RARELY):
            return True
        return not self.is_fresh(active_at) and passed > max(self._pause, self._took * _RARELY)

    def is_fresh(self, active_at: float) -> bool:
        """Return whether there was no activity since the last scan of the person's files."""
        return self._looked_at > active_at

    async def look_at_files(self) -> None:
        """Scan the person's files; `changed` are those whose content is to be read."""
        self._pause = _SOONEST_SECONDS if self._looked_at else 0.0
        self._looked_at = time.monotonic()
        found = await asyncio.to_thread(look, self.settings.workspace, MOST_FILE_BYTES)
        self._took = time.monotonic() - self._looked_at
        # Deleted files need no path.
        self._paths = found.paths
        self._unkept = found.unkept
        self.changed = [(name, seen) for name, seen in found.files.items() if not seen.is_as(self.shipped.get(name))]
        self.known = set(known_chunks(self.shipped.values()))
        # In this order, so that a replica never has a name as a file and as a folder.
        await self._note_gone(found)
        await self._note(FOLDERS, {name: _json(folder) for name, folder in found.folders.items()})
        omitted = _json(found.omitted)
        if (await self.state.rows(MANIFEST)).get(OMITTED, _json(Omitted())) != omitted:
            await self.state.put(MANIFEST, {OMITTED: omitted})

    async def _note_gone(self, found: Look) -> None:
        gone = [name for name in self.shipped if name not in found.files]
        await self.state.put(FILES, {}, gone)
        for name in gone:
            del self.shipped[name]

    async def note_files(self, files: Mapping[str, FileFacts]) -> None:
        """Record files whose content the replica has."""
        await self.state.put(FILES, {name: _json(facts) for name, facts in files.items()})
        self.shipped.update(files)

    async def _note(self, part: str, now: Mapping[str, str]) -> None:
        before = await self.state.rows(part)
        changed = {name: facts for name, facts in now.items() if before.get(name) != facts}
        await self.state.put(part, changed, [name for name in before if name not in now])

    def row(self, part: str, name: str, facts: str | None, memory: Mapping[str, MemoryFile]) -> dict[str, Any] | None:
        """Return the row to send for a thing; None if it is gone."""
        if facts is None:
            return None
        known: dict[str, Any] = msgspec.json.decode(facts)
        if part == MEMORY:
            return _row_of(memory[name]) if name in memory else None
        if (part, name) == (MANIFEST, OMITTED) and known.pop("names", ""):
            # The names are not stored here.
            return {**known, "named": self._unkept}
        if part not in {FILES, FOLDERS}:
            return known
        if name not in self._paths:
            return None
        shown = {"path": self._paths[name], **known}
        for ours in ("changed_ns", "inode"):
            shown.pop(ours, None)
        return shown


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _facts_of(file: MemoryFile) -> dict[str, Any]:
    digest = hashlib.sha256(file.content).hexdigest()
    return {"sha256": digest, "mode": file.mode, "modified_ns": file.modified_ns}


def _row_of(file: MemoryFile) -> dict[str, Any]:
    content = {"base64": base64.b64encode(file.content).decode()}
    return {"content": content, "mode": file.mode, "modified_ns": file.modified_ns}


#: Text for a forget that the replica received and has not yet carried out.
NOT_RID_OF_IT = "Forgotten here; the copy at the bridge is not yet rid of it"


class ShippingReport(msgspec.Struct, frozen=True):
    """State of the replica. `followed`: one has data of this sprite; `acked_at` is its last acknowledgement (Unix s).

    `waiting` is the number of pending rows, `unshipped_forgets` of unconfirmed forgets.
    """

    followed: bool
    acked_at: float | None
    waiting: int
    unshipped_forgets: int
    files_left_out: Omitted

    def words(self) -> list[str]:
        """Return the problems, one line each."""
        left_out = self.files_left_out
        lines = [f"{NOT_RID_OF_IT} ({self.unshipped_forgets} forget(s))"] if self.unshipped_forgets else []
        if left_out.over_limit:
            lines.append(
                f"{left_out.over_limit} file(s), {size_in_words(left_out.bytes)}, are not in the copy at the bridge: "
                f"it holds {size_in_words(MOST_FILE_BYTES)} at most"
            )
        if left_out.unkept:
            lines.append(
                f"{left_out.unkept} file(s) or folder(s) are in no copy and no archive, for their names or since they "
                "cannot be read: `python -m sprite export` names them"
            )
        return lines


async def shipping_report(transcript: TranscriptDB, workspace: WorkspaceDB) -> ShippingReport:
    """Return the state of replication."""
    state = workspace.ship_state
    followed = await state.followed()
    return ShippingReport(
        followed=followed.acked_at is not None,
        acked_at=followed.acked_at,
        waiting=await transcript.changes.count() + await workspace.changes.count(),
        unshipped_forgets=await state.tombstones(),
        files_left_out=omitted_in(await state.rows(MANIFEST)),
    )
