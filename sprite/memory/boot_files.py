"""Boot texts of sessions elsewhere, kept on disk per project, so that no session waits for a sprite.

    .os/run/boot/<SHA-256 of the project's key, in hex>.md

The file for the user's own memory has the hash of the empty text; sessions of unknown projects can begin with it. Files
are replaced atomically after memory or its queue changed, for projects with turns in the last 30 days. Only the owner
can read them. An empty text has no file.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from sprite.common.files import clear, replace_file
from sprite.common.tasks import owned_task
from sprite.database.transcript import TranscriptDB
from sprite.memory.recall.project_boot import ProjectBoot

log = logging.getLogger(__name__)

#: The projects with the newest turns have files, up to this number.
MOST_PROJECTS = 30
KEPT_SECONDS = 30 * 86_400.0
#: Changes come in bursts: wait this long between two rounds.
PAUSE_SECONDS = 1.0


def boot_file_name(project: str | None) -> str:
    """Return the name of a project's file; None stands for the user's own memory."""
    return hashlib.sha256((project or "").encode()).hexdigest() + ".md"


class BootFiles:
    """Keep the boot files up to date in the background."""

    def __init__(self, folder: Path, transcript: TranscriptDB, boot: ProjectBoot) -> None:
        self._folder = folder
        self._transcript = transcript
        self._boot = boot
        self._changed = asyncio.Event()
        self._leaving = asyncio.Event()
        self._writing = asyncio.Lock()

    @asynccontextmanager
    async def unwritten(self) -> AsyncIterator[None]:
        """Pause writing while the block runs."""
        async with self._writing:
            yield

    async def text(self, project: str | None) -> str:
        """Return the current boot text of a project."""
        return await self._boot.text(project)

    def changed(self) -> None:
        """Schedule a rewrite, because memory or its queue changed."""
        self._changed.set()

    @asynccontextmanager
    async def running(self, on_death: Callable[[], None]) -> AsyncIterator[None]:
        """Write in the background while the block runs, and a last time at its end if something changed."""
        self.changed()
        async with owned_task(self._keep(), name="boot files", on_death=on_death, finish=self._leave):
            yield

    def _leave(self) -> None:
        self._leaving.set()
        self._changed.set()

    async def _keep(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                async with self._writing:
                    await self.write()
            except Exception:
                # The files get stale, which affects sessions elsewhere only; the sprite does not read them.
                log.exception("what sessions elsewhere begin with could not be written")
            if self._leaving.is_set():
                return
            await self._rest()

    async def _rest(self) -> None:
        try:
            async with asyncio.timeout(PAUSE_SECONDS):
                await self._leaving.wait()
        except TimeoutError:
            return

    async def write(self) -> None:
        """Write every changed file, and remove the files of projects that no longer have one."""
        if self._folder.is_symlink():
            # The agent can write to its workspace, too. A link could make us delete files elsewhere.
            self._folder.unlink()
        since = time.time() - KEPT_SECONDS
        found = await self._transcript.projects(MOST_PROJECTS)
        wanted = {boot_file_name(None)}
        common = await self._boot.common()
        for project in [None, *(key for key, _, last_at in found if last_at >= since)]:
            text = await self._boot.text(project, common)
            if text:
                wanted.add(boot_file_name(project))
                await asyncio.to_thread(self._put, boot_file_name(project), text)
            else:
                (self._folder / boot_file_name(project)).unlink(missing_ok=True)
        if self._folder.is_dir():
            clear(self._folder, wanted)

    def _put(self, name: str, text: str) -> None:
        self._folder.mkdir(mode=0o700, exist_ok=True)
        path = self._folder / name
        if path.is_file() and path.read_bytes() == text.encode():
            return
        replace_file(path, text.encode(), is_synced=False)
