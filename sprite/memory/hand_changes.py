"""Log changes on disk: a person's edit, or drift if the agent was at work.

Drift has no effect until a person accepts or rejects it: memory keeps its content, and the file on disk stays. An edit
during open drift is drift, too, because it may contain unreviewed text.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sprite.errors import PeerError
from sprite.log.curations import Drift
from sprite.log.transcript import TranscriptDB
from sprite.memory.database import FileVersion, MemoryDB
from sprite.memory.files import CURATED, DEPLOYED, MemoryFiles, over_limit, sha256, template

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Recorded:
    """The newest version of each curated file, and the SHA-256 of the last content written to it."""

    latest: dict[str, FileVersion]
    written: dict[str, str]


class HandChanges:
    """Detect edits of memory files that Sprite did not write, and log a person's decisions on them."""

    def __init__(
        self, transcript: TranscriptDB, memory: MemoryDB, files: MemoryFiles, tell: Callable[[str], None]
    ) -> None:
        self._tell = tell
        self._curations = transcript.curations
        self._memory = memory
        self._files = files
        #: Open drift by file, as of the last check.
        self.drift: dict[str, Drift] = {}

    async def log(self) -> bool:
        """Log every memory file that differs from what Sprite last wrote. Return whether there was one."""
        self.drift = await self._curations.open_drift()
        before = self._files.before_work()
        recorded = await self.recorded()
        found = [await self._look(name, recorded, at_work=before is not None) for name in CURATED]
        found += [await self._look_at_deployed(name, before) for name in DEPLOYED]
        if any(found):
            self.drift = await self._curations.open_drift()
        return any(found)

    def waiting(self, name: str) -> Drift:
        """Return a file's edit that waits for a person's decision. Raise PeerError if there is none."""
        drift = self.drift.get(name)
        if drift is None:
            raise PeerError(f"No change of {name[:80]!r} waits for a decision.", code="not_found")
        return drift

    async def accept(self, drift: Drift) -> None:
        """Log that a person accepted an edited file's content on disk."""
        if drift.name in DEPLOYED:
            if (before := self._files.before_work()) is not None:
                self._files.note_work({**before, drift.name: drift.content})
            await self._curations.append_said("drift", {"name": drift.name, "accepted": drift.curation_id})
        else:
            await self._log_edit(drift.name, drift.content, source="accepted", drift=drift.curation_id)

    async def reject(self, drift: Drift) -> None:
        """Log that a person rejected an edit, so the file keeps its old content; restore a deployed file at once."""
        if drift.was is not None:
            self._files.write(drift.name, drift.was)
        await self._curations.append_said("drift", {"name": drift.name, "rejected": drift.curation_id})

    async def recorded(self) -> Recorded:
        """Return what memory.db records about the curated files now."""
        return Recorded(await self._memory.latest_versions(), await self._memory.written())

    async def _look(self, name: str, recorded: Recorded, *, at_work: bool) -> bool:
        if (words := self._files.set_aside_the_unusable(name)) is not None:
            self._tell(words)
        if not self._files.exists(name):
            return False
        content, waiting = self._files.on_disk(name), self.drift.get(name)
        if waiting is None:
            if await self.knows(name, content, recorded):
                return False
        elif content == waiting.content:
            return False
        if waiting is not None and content == await in_memory(self._memory, name):
            await self._curations.append_said(
                "drift", {"name": name, "rejected": waiting.curation_id, "source": "disk"}
            )
        elif waiting is not None or at_work:
            await self._log_drift({"name": name, "content": content})
        else:
            log.info("%s was edited by hand", name)
            await self._log_edit(name, content, source="disk")
        await self._memory.mark_written(name, sha256(content))
        return True

    async def _look_at_deployed(self, name: str, before: dict[str, str] | None) -> bool:
        """Log an edit of a deployed file by the agent. Changes outside the agent's work belong to the deployer."""
        if (words := self._files.set_aside_the_unusable(name)) is not None:
            self._tell(words)
            if before is None:
                self._files.write(name, template(name))
        waiting = self.drift.get(name)
        was = waiting.was if waiting is not None else (before or {}).get(name)
        if was is not None and before is not None and not self._files.exists(name):
            self._files.write(name, was)
        content = self._files.on_disk(name)
        if waiting is not None and content == waiting.content:
            return False
        if was is not None and before is not None and content not in {was, template(name)}:
            await self._log_drift({"name": name, "content": content, "was": was})
        elif waiting is not None:
            await self._curations.append_said(
                "drift", {"name": name, "rejected": waiting.curation_id, "source": "disk"}
            )
        else:
            return False
        return True

    async def _log_drift(self, response: dict[str, Any]) -> None:
        log.warning("%s changed while the agent was at work; it waits for a person's decision", response["name"])
        await self._curations.append_said("drift", {**response, "source": "disk"})

    async def _log_edit(self, name: str, content: str, **more: Any) -> None:
        over = over_limit(name, content)
        reported = {} if over is None else {"over": over}
        if over is not None:
            log.warning("%s; it stays as it was written, and prompts have only the part within the limits", over)
            self._tell(f"{over}. It stays as you wrote it, but the agent sees only the part within the limits.")
        await self._curations.append_said("edit", {"name": name, "content": content, **more, **reported})

    async def knows(self, name: str, content: str, recorded: Recorded) -> bool:
        """Return whether Sprite wrote this content to a file, or may have written it before a crash."""
        digest = sha256(content)
        written = recorded.written.get(name)
        if digest == written:
            return True
        # A crash between the rename and its mark, or a rebuilt memory.db, leaves no mark. Any version that the runtime
        # could have written then counts as its own.
        latest = recorded.latest.get(name)
        if latest is None:
            return content == template(name)
        if digest == latest.sha256:
            return True
        if written is not None:
            return False
        return content == template(name) or any(
            digest == version.sha256 for version in await self._memory.versions(name)
        )


async def in_memory(memory: MemoryDB, name: str) -> str:
    """Return a curated file's content according to memory.db, which the file on disk may lack."""
    latest = await memory.latest_version(name)
    return template(name) if latest is None else latest.content


async def held_back(memory: MemoryDB, drift: dict[str, Drift]) -> dict[str, str]:
    """Return the content that memory uses for each file with open drift, by file name."""
    return {
        name: await in_memory(memory, name) if waiting.was is None else waiting.was for name, waiting in drift.items()
    }
