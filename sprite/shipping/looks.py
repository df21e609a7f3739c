"""Looks at what is in no table of the log: memory's files, the person's files, and what is true of the whole.

What is found to differ from what was noted before is noted in `ship_rows`, and so is shipped like a row of a table.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import time
from collections.abc import Mapping
from typing import Any, Final

import msgspec

from sprite.archive.snapshot import SCHEMAS, MemoryFile, memory_files
from sprite.config import Settings
from sprite.database.memory import MemoryDB
from sprite.database.ship_state import ShipState
from sprite.shipping.files import FileFacts, Look, Omitted, Seen, known_chunks, look

#: The parts, as they are shipped.
FILES: Final = "files"
FOLDERS: Final = "folders"
MEMORY: Final = "memory"
MANIFEST: Final = "manifest"
WRITTEN: Final = "memory/written.jsonl"
OMITTED: Final = "files_left_out"
#: The person's folders are looked at again after something happened, but not sooner than this after the last time, and
#: so long after it in any case.
_SOONEST_SECONDS = 2.0
_LATEST_SECONDS = 30.0
#: A look takes no more than one part in so many of the time.
_RARELY = 20

_FILE = msgspec.json.Decoder(FileFacts)


def omitted_in(facts: Mapping[str, str]) -> Omitted:
    """What the manifest's rows say of files that are not shipped."""
    return msgspec.json.decode(facts.get(OMITTED, "{}"), type=Omitted)


class Looks:
    """The looks of one connection; `shipped` are the files as they were noted last, `changed` those to be read."""

    def __init__(self, settings: Settings, state: ShipState, memory: MemoryDB) -> None:
        self._settings = settings
        self._state = state
        self._memory = memory
        self._paths: dict[str, str] = {}
        self._unkept: list[str] = []
        self._looked_at = 0.0
        self._took = 0.0
        #: Not before the second look: that follows what waited when the store came.
        self._pause = 0.0
        self.shipped: dict[str, FileFacts] = {}
        self.changed: list[tuple[str, Seen]] = []
        #: Chunks that the store has, or is being sent.
        self.known: set[str] = set()

    async def begin(self) -> None:
        """Reads what was noted before."""
        rows = await self._state.rows(FILES)
        self.shipped = await asyncio.to_thread(lambda: {name: _FILE.decode(facts) for name, facts in rows.items()})

    async def look_at_memory(self) -> None:
        """Notes what changed of memory's files, and of the whole but for the person's files."""
        found = await asyncio.to_thread(memory_files, self._settings)
        await self._note(MEMORY, {name: _json(_facts_of(file)) for name, file in found.items()})
        written = await self._memory.all_written()
        await self._note(WRITTEN, {name: _json({"name": name, "sha256": sha}) for name, sha in written.items()})
        schemas = _json({name: len(schema.migrations) for name, schema in SCHEMAS.items()})
        if (await self._state.rows(MANIFEST)).get("schemas") != schemas:
            await self._state.put(MANIFEST, {"schemas": schemas})

    def is_due(self, active_at: float) -> bool:
        """Whether to look at the person's files now; something happened last at `active_at` (monotonic seconds)."""
        passed = time.monotonic() - self._looked_at
        if not self._looked_at or passed > max(_LATEST_SECONDS, self._took * _RARELY):
            return True
        return not self.is_fresh(active_at) and passed > max(self._pause, self._took * _RARELY)

    def is_fresh(self, active_at: float) -> bool:
        """Whether nothing happened since the last look at the person's files."""
        return self._looked_at > active_at

    async def look_at_files(self) -> None:
        """Looks at the person's files; `changed` are those whose content is to be read."""
        self._pause = _SOONEST_SECONDS if self._looked_at else 0.0
        self._looked_at = time.monotonic()
        found = await asyncio.to_thread(look, self._settings.workspace, self._settings.ship_files_bytes)
        self._took = time.monotonic() - self._looked_at
        # What is gone has its path no more, and needs none.
        self._paths = found.paths
        self._unkept = found.unkept
        self.changed = [(name, seen) for name, seen in found.files.items() if not seen.is_as(self.shipped.get(name))]
        self.known = set(known_chunks(self.shipped.values()))
        # In this order: a store never has a name as a file's and as a folder's.
        await self._note_gone(found)
        await self._note(FOLDERS, {name: _json(folder) for name, folder in found.folders.items()})
        omitted = _json(found.omitted)
        if (await self._state.rows(MANIFEST)).get(OMITTED, _json(Omitted())) != omitted:
            await self._state.put(MANIFEST, {OMITTED: omitted})

    async def _note_gone(self, found: Look) -> None:
        gone = [name for name in self.shipped if name not in found.files]
        await self._state.put(FILES, {}, gone)
        for name in gone:
            del self.shipped[name]

    async def note_files(self, files: Mapping[str, FileFacts]) -> None:
        """The store has the content of these."""
        await self._state.put(FILES, {name: _json(facts) for name, facts in files.items()})
        self.shipped.update(files)

    async def _note(self, part: str, now: Mapping[str, str]) -> None:
        before = await self._state.rows(part)
        changed = {name: facts for name, facts in now.items() if before.get(name) != facts}
        await self._state.put(part, changed, [name for name in before if name not in now])

    def row(self, part: str, name: str, facts: str | None, memory: Mapping[str, MemoryFile]) -> dict[str, Any] | None:
        """What is shipped of a thing; None where it is gone."""
        if facts is None:
            return None
        known: dict[str, Any] = msgspec.json.decode(facts)
        if part == MEMORY:
            return _row_of(memory[name]) if name in memory else None
        if (part, name) == (MANIFEST, OMITTED) and known.pop("names", ""):
            # They stand nowhere here.
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
