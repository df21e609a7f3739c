"""Forget words in every store, so that a search over the bytes finds nothing.

The order makes a crash safe at any moment. User-visible stores, the CLI's logs and all derived files come first. The
log still has the words to search for then, so an interrupted forget can be repeated. Then the log changes in one
transaction with its tombstone. The projection, the files and the free pages follow. An empty marker file makes the next
start, or the next forget, finish this. Remote replicas are notified on the way, see `shipping/`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence

from sprite.config import Settings
from sprite.errors import PeerError
from sprite.forget.plan import Plan, Target, plan
from sprite.forget.stores import MARKER, CopyStore, FileStore, LogStore, MemoryStore, SeenStore, Store, TheirFiles
from sprite.log.transcript import TranscriptDB
from sprite.memory.database import MemoryDB
from sprite.memory.files import MemoryFiles
from sprite.memory.projection import Projection
from sprite.protocol.shapes import Forgotten, Place
from sprite.workspace.database import WorkspaceDB

log = logging.getLogger(__name__)

#: More turns than this need a confirmation.
MANY_TURNS = 10
#: Places listed in a result; the others are counted.
MOST_PLACES = 200


class Forgetter:
    """Forget for a person, in a workspace that this process owns and in which nothing runs."""

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
        self._theirs = TheirFiles(settings)
        self._log = LogStore(settings, transcript, memory)
        self._copy = CopyStore(workspace, tell_store)
        #: Every store in the order of removal; those after the log derive from it.
        self.stores: tuple[Store, ...] = (
            SeenStore(workspace),
            FileStore(settings),
            self._log,
            MemoryStore(memory, MemoryFiles(settings.memory)),
            self._copy,
            self._theirs,
        )

    async def preview(self, target: Target) -> Forgotten:
        """Return the effects of a forget, in numbers and words, without changes."""
        made = await plan(target, self._transcript, self._memory)
        gone = await self._find(made, *(store for store in self.stores if store not in {self._copy, self._theirs}))
        self._refuse_nothing(made, gone)
        return self._told(made, gone=gone)

    async def forget(self, target: Target, *, sure: bool) -> Forgotten:
        """Forget, then search every local store. Return what was removed, and each place that still has it.

        The caller waits for the replica at the bridge. PeerError if nothing matches, or if it is too much without
        `sure`.
        """
        # An edit between the plan and the write would restore the forgotten text.
        async with self._projection.held() as settle:
            # Log manual changes on disk first, or they would later count as the person's own text.
            await settle()
            made = await plan(target, self._transcript, self._memory)
            if not made.observations and not made.curations:
                self._refuse_nothing(made, await self._find(made, *self.stores[:3]))
            if len(made.observations) > MANY_TURNS and not sure:
                raise PeerError(
                    f"That would forget {len(made.observations)} turns. If you are sure, say so (--yes).",
                    code="too_much",
                )
            (self._settings.run / MARKER).touch()
            for store in self.stores[: self.stores.index(self._log) + 1]:
                await store.remove(made)
            await self._finish(settle)
        found = await self._find(made, *(store for store in self.stores if store is not self._copy))
        return self._told(made, still=[*found, *await self._says_it_too(made)])

    async def finish_interrupted(self) -> None:
        """Complete an interrupted forget."""
        if (self._settings.run / MARKER).exists():
            log.warning("a forget was cut off and is finished now")
            async with self._projection.held() as settle:
                await self._finish(settle)

    async def _finish(self, settle: Callable[[], Awaitable[object]]) -> None:
        await settle()
        # The replica must forget it, too. Once this is recorded, no crash can lose it.
        await self._copy.tell()
        await self._transcript.purge()
        await self._memory.purge()
        await self._workspace.purge()
        (self._settings.run / MARKER).unlink(missing_ok=True)

    @staticmethod
    async def _find(made: Plan, *stores: Store) -> list[Place]:
        return list(dict.fromkeys([place for store in stores for place in await store.find(made)]))

    @staticmethod
    def _refuse_nothing(made: Plan, found: list[Place]) -> None:
        if not found and not made.observations and not made.curations:
            raise PeerError("Nothing in memory matches that.", code="not_found")

    async def _says_it_too(self, made: Plan) -> list[Place]:
        """Return the learnings that stay but contain the phrases."""
        return [
            Place(f"learning {row.id}, which says more", row.content)
            for row in await self._memory.learnings(limit=2**31)
            if made.scrubber.stands_in(row.content)
        ]

    def _told(self, made: Plan, *, gone: Sequence[Place] = (), still: Sequence[Place] = ()) -> Forgotten:
        return Forgotten(
            **made.summary(),
            remains=self._theirs.deployed(made.scrubber),
            gone=list(gone[:MOST_PLACES]),
            more=max(0, len(gone) + len(still) - MOST_PLACES),
            still=list(still[:MOST_PLACES]),
        )
