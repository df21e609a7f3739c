"""ObservationProcessor: turns that wait -> one model call per batch -> one curation in the log -> memory.

Stateless: everything a call needs is read from the log and the files, and what came of it is in the log before
anything else happens. No turn is skipped for its age: what fails waits, and is tried again; what can be answered by no
call is set aside, so that the others go on (`curation/attempts.py`).
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

from sprite.config import Settings
from sprite.database.memory import MemoryDB
from sprite.database.transcript import Observation, TranscriptDB
from sprite.errors import ModelError, SpriteError, StorageError
from sprite.memory.curation.attempts import Attempts
from sprite.memory.curation.budget import (
    BudgetReachedError,
    check_budget,
)
from sprite.memory.curation.extraction import (
    Extractor,
    log_lost_call,
)
from sprite.memory.curation.model import (
    CuratorModel,
    VainError,
)
from sprite.memory.files import MemoryFiles
from sprite.memory.last_error import (
    last_error,
    note_error,
)
from sprite.memory.projection.fold import Change
from sprite.memory.projection.projection import Projection
from sprite.tasks import TaskSet, owned_task
from sprite.userfiles.user_files import UserFiles, is_look

log = logging.getLogger(__name__)

FIRST_RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 300.0
#: So many failures in a row end a flush; the next turn's end, session or start begins another.
MAX_ATTEMPTS = 8


class ObservationProcessor:
    """Curates what waits, one flush at a time, beside the agent."""

    def __init__(
        self,
        settings: Settings,
        transcript: TranscriptDB,
        memory: MemoryDB,
        files: MemoryFiles,
        projection: Projection,
        on_change: Callable[[Change], None],
        user_files: UserFiles | None = None,
    ) -> None:
        self._settings = settings
        self._transcript = transcript
        self._projection = projection
        self._files = files
        self._on_change = on_change
        self._user_files = user_files
        self._one_flush = asyncio.Lock()
        self._wanted = asyncio.Event()
        self._flushes = TaskSet()
        self._model = CuratorModel(settings, partial(log_lost_call, transcript))
        extractor = Extractor(memory, files, self._model)
        self._attempts = Attempts(transcript, extractor, transcript.quarantine.set_aside)
        #: In words, what went wrong last; None once all is well again. Known here also where the disk refuses.
        self.last_error = last_error(settings.run)

    @property
    def is_flushing(self) -> bool:
        """Whether a flush is under way."""
        return self._one_flush.locked()

    # --- triggers ---

    async def turn_ended(self) -> None:
        """A turn was written: at the batch size, what waits is curated beside the agent."""
        if await self._transcript.waiting_count() >= self._settings.batch_turns:
            self.request()

    async def leftovers(self) -> bool:
        """Whether turns wait that an earlier process did not curate."""
        return await self._transcript.waiting_count() > 0

    def request(self) -> None:
        """Asks for a flush in the background; returns at once."""
        self._wanted.set()

    async def flush_within(self, seconds: float) -> bool:
        """Curates what waits, in one attempt with a deadline; True if nothing waits any more.

        What the deadline or an error leaves is taken up in the background.
        """
        flush = self._flushes.start(self._flush_once(), "flush")
        # Not cancelled at the deadline: the call is paid for, and its answer is still wanted.
        await asyncio.wait({flush}, timeout=seconds)
        if not flush.done():
            log.warning("curation takes longer than %.0f s and goes on in the background", seconds)
            return False
        if not flush.result():
            self.request()
            return False
        return True

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """No flush runs while the block does; one under way is waited for."""
        async with self._one_flush:
            yield

    @asynccontextmanager
    async def running(self, on_death: Callable[[], None]) -> AsyncIterator[None]:
        """Runs the background worker while the block runs; what it is doing then is abandoned, not lost."""
        try:
            async with owned_task(self._work(), name="curation", on_death=on_death), self._flushes:
                yield
        finally:
            await self._model.close()

    # --- the worker ---

    async def _work(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            try:
                await self._flush_persistently()
            except Exception:
                # A bug must not end curation for the process's life; the turns wait for the next trigger.
                log.exception("curation failed unexpectedly")
                self._remember("curation failed unexpectedly; see the log")

    async def _flush_persistently(self) -> None:
        attempt = 0
        while attempt < MAX_ATTEMPTS:
            try:
                await self._flush()
            except VainError as error:
                # The next call is another one, and how many there can be is bounded by what a turn may cost.
                self._note(error)
                await asyncio.sleep(_pause(0, error))
            except BudgetReachedError as error:
                self._note(error)
                return
            except SpriteError as error:
                self._note(error)
                if isinstance(error, ModelError) and not error.retryable:
                    return
                await asyncio.sleep(_pause(attempt, error))
                attempt += 1
            else:
                return
        log.warning("curation gave up for now after %d attempts; the turns wait", MAX_ATTEMPTS)

    def _note(self, error: SpriteError) -> None:
        log.warning("curation: %s", error)
        self._remember(str(error))

    def _remember(self, words: str | None) -> None:
        self.last_error = words
        note_error(self._settings.run, words)

    # --- a flush ---

    async def _flush_once(self) -> bool:
        try:
            await self._flush()
        except SpriteError as error:
            self._note(error)
            return False
        return True

    async def _flush(self) -> None:
        async with self._one_flush:
            self._publish(await self._projection.settle())
            while turns := await self._transcript.waiting(self._settings.batch_turns):
                await self._curate(await self._with_look(turns))
                self._remember(None)

    async def _with_look(self, turns: list[Observation]) -> list[Observation]:
        """A batch; with it, where no turn waits behind it, what changed in the person's folders."""
        following = await self._transcript.waiting(len(turns) + 1)
        if self._user_files is not None and len(following) == len(turns):
            try:
                if await self._user_files.look(turns, self._files.read("files.md")):
                    following = await self._transcript.waiting(len(turns) + 1)
            except StorageError as error:
                # What the turns teach does not wait for it; the next flush looks again.
                log.warning("the person's folders could not be looked at: %s", error)
        # A look is no turn of anybody's: it is not left over for a call of its own.
        return following if is_look(following[-1]) else turns

    def _publish(self, changes: list[Change]) -> None:
        for change in changes:
            self._on_change(change)

    async def _curate(self, turns: list[Observation]) -> None:
        await check_budget(self._settings, self._transcript)
        _, generation = await self._transcript.curations.activation()
        is_followed = await self._transcript.waiting_count() > len(turns)
        curation = await self._attempts.extract(turns, generation, is_followed=is_followed)
        if curation is None:
            log.warning("turn %d was set aside, since every call about it was in vain", turns[0].id)
        else:
            await self._transcript.curations.append_batch(curation)
        self._publish(await self._projection.settle())


def _pause(attempt: int, error: SpriteError) -> float:
    """Exponential backoff with full jitter (AWS, "Exponential Backoff And Jitter"), or what the server asks for."""
    asked = error.retry_after if isinstance(error, ModelError) else None
    if asked is not None:
        return min(asked, LONGEST_RETRY_SECONDS)
    longest: float = FIRST_RETRY_SECONDS * 2**attempt
    return min(LONGEST_RETRY_SECONDS, longest) * random.uniform(0.5, 1.0)  # noqa: S311 - no secret
