"""Forgetting: takes words out of everything below `.os/`, so that a search over its bytes finds nothing.

The order makes it safe to be killed at any moment. What people see, the CLI's own logs and every derived file go
first, while the log still has the words to look for: a killed forget is simply asked for again. Then the log, in one
transaction with its tombstone. What follows (the projection, the files, the pages) is derived, and a marker without
content makes the next start, or the next forget, finish it. A store elsewhere is told on the way, see `shipping/`.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

from sprite.config import Settings
from sprite.database.memory import MemoryDB
from sprite.database.transcript import TranscriptDB
from sprite.database.workspace import WorkspaceDB
from sprite.errors import PeerError
from sprite.memory.files import DEPLOYED, MemoryFiles
from sprite.memory.forgetting.plan import (
    Plan,
    Target,
    plan,
)
from sprite.memory.projection.projection import Projection
from sprite.protocol.rows import Forgotten
from sprite.userfiles.scan import is_there

log = logging.getLogger(__name__)

#: More turns than this are forgotten only by somebody who says so twice.
MANY_TURNS = 10
_MARKER = "purge"


class Forgetter:
    """Forgets on behalf of a person, in a workspace that this process owns and in which nothing is running."""

    def __init__(
        self,
        settings: Settings,
        transcript: TranscriptDB,
        memory: MemoryDB,
        workspace: WorkspaceDB,
        projection: Projection,
        tell_store: Callable[[], Awaitable[None]],
    ) -> None:
        self._settings = settings
        self._transcript = transcript
        self._memory = memory
        self._workspace = workspace
        self._projection = projection
        self._tell_store = tell_store

    async def preview(self, target: Target) -> Forgotten:
        """What a forget would touch."""
        made = await plan(target, self._transcript, self._memory)
        return Forgotten(**made.summary(), remains=self._remains(made))

    async def forget(self, target: Target, *, sure: bool) -> Forgotten:
        """Forgets, and says in numbers what went. PeerError if nothing matches, or too much and `sure` is not set."""
        # An edit between the plan and its writing would bring back what is being forgotten.
        async with self._projection.held() as settle:
            # What hands have written meanwhile has to be in the log, or it would be taken for theirs afterwards.
            await settle()
            made = await plan(target, self._transcript, self._memory)
            if len(made.observations) > MANY_TURNS and not sure:
                raise PeerError(
                    f"That would forget {len(made.observations)} turns. If you are sure, say so (--yes).",
                    code="too_much",
                )
            (self._settings.run / _MARKER).touch()
            await self._workspace.forget(made.missions, made.cards, made.scrubber.value)
            self._sweep(made)
            await self._transcript.user_files.forget(
                lambda path: is_there(self._settings.workspace, path), lambda path: _names(path, made)
            )
            await self._transcript.forget(list(made.observations.values()), made.curations, made.summary())
            await self._finish(settle)
        return Forgotten(**made.summary(), remains=self._remains(made))

    async def finish_interrupted(self) -> None:
        """Completes what a killed process had begun."""
        if (self._settings.run / _MARKER).exists():
            log.warning("a forget was cut off and is finished now")
            async with self._projection.held() as settle:
                await self._finish(settle)

    async def _finish(self, settle: Callable[[], Awaitable[object]]) -> None:
        await settle()
        # A copy elsewhere has to forget it, too; once this is noted no kill can take that back.
        await self._tell_store()
        await self._transcript.purge()
        await self._memory.purge()
        await self._workspace.purge()
        (self._settings.run / _MARKER).unlink(missing_ok=True)

    def _sweep(self, made: Plan) -> None:
        """Deletes every other file that has the words, or is made of what has them."""
        # The CLI's logs serve to resume a conversation, and none is resumed that knows what was forgotten; the prompt
        # of the last one holds memory as it was, and so does what sessions elsewhere are told.
        shutil.rmtree(self._settings.cli_state, ignore_errors=True)
        self._settings.boot_prompt.unlink(missing_ok=True)
        shutil.rmtree(self._settings.boot_files, ignore_errors=True)
        for path in self._settings.system.rglob("*"):
            if path.is_file() and not path.is_symlink() and not self._keeps(path):
                derived = path.parent == self._settings.memory
                if derived or _has(path, made):
                    path.unlink(missing_ok=True)

    def _remains(self, made: Plan) -> list[str]:
        """Deployed files are not memory and are not scrubbed: the person is told which of them have the words."""
        files = MemoryFiles(self._settings.memory)
        return [name for name in DEPLOYED if files.exists(name) and made.scrubber.finds(files.on_disk(name))]

    def _keeps(self, path: Path) -> bool:
        """Whether a file is scrubbed row by row, or is none of what memory made."""
        settings = self._settings
        system = settings.system
        # What guards or names the running process.
        left_alone = {settings.lock.name, settings.token_file.name, settings.address_file.name, _MARKER}
        if path.name in left_alone or path.is_relative_to(system / "src") or path.is_relative_to(system / ".venv"):
            return True
        if path.parent == settings.memory and path.name in DEPLOYED:
            return True
        # A journal has its database's name; a copy that was set aside has more of one, and is not kept.
        stores = (settings.transcript_db, settings.memory_db, settings.workspace_db)
        return any(str(path) in {f"{store}{suffix}" for suffix in ("", "-wal", "-shm")} for store in stores)


def _has(path: Path, made: Plan) -> bool:
    try:
        text = path.read_bytes().decode("utf-8", errors="replace")
    except OSError:
        return False
    return _names(text.replace("\\n", "\n").replace('\\"', '"'), made)


def _names(text: str, made: Plan) -> bool:
    return made.scrubber.finds(text) or any(word in text.casefold() for word in made.scrubber.words)
