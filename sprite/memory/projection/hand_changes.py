"""What others change on disk -> the log: a person's edit, or drift where the agent was at work meanwhile.

Drift changes nothing by itself: memory keeps what it had, the file on disk stays as somebody wrote it, and a person
says which of the two it is to be. An edit while drift waits is drift, too: it may hold what nobody has looked at.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sprite.database.curations import Drift
from sprite.database.memory import MemoryDB
from sprite.database.transcript import TranscriptDB
from sprite.errors import PeerError
from sprite.memory.files import CURATED, DEPLOYED, MemoryFiles, over_limit, sha256, template

log = logging.getLogger(__name__)


class HandChanges:
    """Notices what the runtime did not write, and takes a person's word on what waits for it."""

    def __init__(
        self, transcript: TranscriptDB, memory: MemoryDB, files: MemoryFiles, tell: Callable[[str], None]
    ) -> None:
        self._tell = tell
        self._curations = transcript.curations
        self._memory = memory
        self._files = files
        #: What waits for a person's word, by file, as of the last look.
        self.drift: dict[str, Drift] = {}

    async def log(self) -> bool:
        """Logs every file that is not as the runtime last wrote it; whether there was one."""
        self.drift = await self._curations.open_drift()
        before = self._files.before_work()
        found = [await self._look(name, at_work=before is not None) for name in CURATED]
        found += [await self._look_at_deployed(name, before) for name in DEPLOYED]
        if any(found):
            self.drift = await self._curations.open_drift()
        return any(found)

    def waiting(self, name: str) -> Drift:
        """The drift of a file. PeerError if none waits."""
        drift = self.drift.get(name)
        if drift is None:
            raise PeerError(f"No change of {name[:80]!r} waits for a decision.", code="not_found")
        return drift

    async def propose(self, contents: Mapping[str, str], digests: Mapping[str, Sequence[str]]) -> None:
        """Puts contents into curated files as drift; `digests` are of what each was made of.

        Killed in the middle, what is on disk is drift all the same: the agent's note stands for who wrote it.
        """
        is_alone = self._files.before_work() is None
        if is_alone:
            self._files.note_work({name: self._files.read(name) for name in DEPLOYED})
        for name, content in contents.items():
            self._files.write(name, content)
            before = self.drift.get(name)
            # What the agent may have written is part of it from now on, and is to be looked at as such.
            said = {"name": name, "source": "import" if before is None else before.source}
            await self._curations.append_drift({**said, "content": content, "proposed": list(digests.get(name, ()))})
            await self._memory.mark_written(name, sha256(content))
        if is_alone:
            self._files.note_rest()

    async def accept(self, drift: Drift) -> None:
        """Logs that what stands on disk is the person's word."""
        if drift.name in DEPLOYED:
            if (before := self._files.before_work()) is not None:
                self._files.note_work({**before, drift.name: drift.content})
            await self._curations.append_drift({"name": drift.name, "accepted": drift.curation_id})
        else:
            await self._log_edit(drift.name, drift.content, source="accepted", drift=drift.curation_id)

    async def reject(self, drift: Drift) -> None:
        """Logs that the file is to be as it was; a deployed one is so at once."""
        if drift.was is not None:
            self._files.write(drift.name, drift.was)
        await self._curations.append_drift({"name": drift.name, "rejected": drift.curation_id})

    async def _look(self, name: str, *, at_work: bool) -> bool:
        if (words := self._files.set_aside_the_unusable(name)) is not None:
            self._tell(words)
        if not self._files.exists(name):
            return False
        content, waiting = self._files.on_disk(name), self.drift.get(name)
        if waiting is None:
            if await self.knows(name, content):
                return False
        elif content == waiting.content:
            return False
        if waiting is not None and content == await in_memory(self._memory, name):
            await self._curations.append_drift({"name": name, "rejected": waiting.curation_id, "source": "disk"})
        elif waiting is not None or at_work:
            await self._log_drift({"name": name, "content": content})
        else:
            log.info("%s was edited by hand", name)
            await self._log_edit(name, content, source="disk")
        await self._memory.mark_written(name, sha256(content))
        return True

    async def _look_at_deployed(self, name: str, before: dict[str, str] | None) -> bool:
        """A deployed file is the deployer's, at any time but while the agent works."""
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
            await self._curations.append_drift({"name": name, "rejected": waiting.curation_id, "source": "disk"})
        else:
            return False
        return True

    async def _log_drift(self, response: dict[str, Any]) -> None:
        log.warning("%s changed while the agent was at work; it waits for a person's word", response["name"])
        await self._curations.append_drift({**response, "source": "disk"})

    async def _log_edit(self, name: str, content: str, **more: Any) -> None:
        over = over_limit(name, content)
        reported = {} if over is None else {"over": over}
        if over is not None:
            log.warning("%s; it stays as it was written, and prompts have what is within the limits", over)
            self._tell(f"{over}. It stays as you wrote it, and the agent is shown what is within the limits.")
        await self._curations.append_edit({"name": name, "content": content, **more, **reported})

    async def knows(self, name: str, content: str) -> bool:
        """Whether this is what the runtime wrote to a file, or could have written: no hand's edit."""
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
        return content == template(name) or any(
            digest == version.sha256 for version in await self._memory.versions(name)
        )


async def in_memory(memory: MemoryDB, name: str) -> str:
    """A curated file as memory has it."""
    latest = await memory.latest_version(name)
    return template(name) if latest is None else latest.content


async def held_back(memory: MemoryDB, drift: dict[str, Drift]) -> dict[str, str]:
    """What is to be read instead of files that wait for a person's word."""
    return {
        name: await in_memory(memory, name) if waiting.was is None else waiting.was for name, waiting in drift.items()
    }
