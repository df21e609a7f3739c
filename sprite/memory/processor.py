"""ObservationProcessor: turns that wait -> one model call per batch -> one curation in the log -> memory.

Stateless: everything a call needs is read from the log and the files, and what came of it is in the log before
anything else happens. No turn is skipped for its age: what fails waits, and is tried again; what can be answered by no
call is set aside, so that the others go on (`curation/attempts.py`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

from sprite.common.retry import backoff
from sprite.common.tasks import TaskSet, owned_task
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
from sprite.memory.projection.decision import Change
from sprite.memory.projection.projection import Projection
from sprite.memory.rest import Rest
from sprite.userfiles.user_files import UserFiles, is_look

log = logging.getLogger(__name__)

FIRST_RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 300.0
#: So many failures in a row end a flush; the next rest, session or start begins another.
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
        is_left: Callable[[], bool] = lambda: True,
        user_files: UserFiles | None = None,
        on_turn: Callable[[], None] = lambda: None,
    ) -> None:
        """`is_left` says whether nobody is connected, which by default nobody is; `on_turn` is told of every turn."""
        self._settings = settings
        self._transcript = transcript
        self._projection = projection
        self._files = files
        self._on_change = on_change
        self._user_files = user_files
        self._on_turn = on_turn
        self._one_flush = asyncio.Lock()
        self._wanted = asyncio.Event()
        self._least_wanted = self._least = settings.least_turns
        #: Up to this turn a flush has begun: what it leaves, in vain or by an outage, is taken up however few they are.
        #: What came while the model was asked is no reason for a call by itself.
        self._begun_through = 0
        self._flushes = TaskSet()
        self._model = CuratorModel(settings, partial(log_lost_call, transcript))
        extractor = Extractor(memory, files, self._model)
        self._attempts = Attempts(transcript, extractor, transcript.quarantine.set_aside)
        can_sleep = settings.vm_socket.exists()
        self._rest = Rest(settings.rest_seconds, self.request, can_sleep=can_sleep, is_left=is_left)
        #: In words, what went wrong last; None once all is well again. Known here also where the disk refuses.
        self.last_error = last_error(settings.run)

    @property
    def needs_machine(self) -> bool:
        """Whether the machine should stay awake: for a flush, and for the rest that one waits for."""
        return self._one_flush.locked() or self._wanted.is_set() or self._rest.is_awaited

    @property
    def asking_since(self) -> float | None:
        """When the curator's model was asked, in Unix seconds; None while no call is open."""
        return self._model.asking_since

    # --- triggers ---

    def turn_began(self) -> None:
        """The conversation goes on, so it does not rest."""
        self._rest.end()

    async def turn_ended(self) -> None:
        """A turn was written: at the batch size, what waits is curated beside the agent; else once it has rested."""
        self._on_turn()
        waiting = await self._transcript.waiting_count()
        if waiting >= self._settings.batch_turns:
            self.request()
        elif waiting >= self._least:
            self._rest.begin()

    async def take_up(self) -> None:
        """Asks for a flush of what an earlier process left: what is worth a call, and what it had begun with."""
        if await self._transcript.waiting_count() < self._least:
            self._begun_through = await self._transcript.quarantine.tried_through()
            if not self._begun_through:
                return
        self.request()

    def request(self, *, all_: bool = False) -> None:
        """Asks for a flush in the background of what is worth a call, or of all that waits; returns at once."""
        if all_:
            self._least_wanted = 1
        self._wanted.set()

    async def flush_all_within(self, seconds: float) -> bool:
        """Curates all that waits, in one attempt with a deadline; True if nothing waits any more.

        What the deadline or an error leaves is taken up in the background.
        """
        return await self._flush_within(seconds, least=1)

    async def session_ended(self, seconds: float) -> None:
        """Curates what waits if it is worth a call, as `flush_all_within` does."""
        await self._flush_within(seconds, least=self._least)

    async def _flush_within(self, seconds: float, *, least: int) -> bool:
        flush = self._flushes.start(self._flush_once(least), "flush")
        # Not cancelled at the deadline: the call is paid for, and its answer is still wanted.
        await asyncio.wait({flush}, timeout=seconds)
        if not flush.done():
            log.warning("curation takes longer than %.0f s and goes on in the background", seconds)
            return False
        if not flush.result():
            self.request(all_=least == 1)
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
            self._rest.end()
            await self._model.close()

    # --- the worker ---

    async def _work(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            least, self._least_wanted = self._least_wanted, self._least
            try:
                await self._flush_persistently(least)
            except Exception:
                # A bug must not end curation for the process's life; the turns wait for the next trigger.
                log.exception("curation failed unexpectedly")
                self._remember("curation failed unexpectedly; see the log")

    async def _flush_persistently(self, least: int) -> None:
        attempt = 0
        while attempt < MAX_ATTEMPTS:
            try:
                await self._flush(least)
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

    async def _flush_once(self, least: int) -> bool:
        try:
            await self._flush(least)
        except SpriteError as error:
            self._note(error)
            return False
        return True

    async def _flush(self, least: int) -> None:
        async with self._one_flush:
            # Also where this fails: no machine is held awake for what has been tried.
            self._rest.end()
            self._publish(await self._projection.settle())
            while turns := await self._next_batch(least):
                await self._curate(await self._with_look(turns))
                self._remember(None)

    async def _next_batch(self, least: int) -> list[Observation]:
        """The turns that wait longest; none where fewer than `least` wait that no flush has begun with."""
        if await self._transcript.waiting_count() >= least:
            (newest,) = await self._transcript.newest_waiting(1)
            self._begun_through = newest.id
        turns = await self._transcript.waiting(self._settings.batch_turns)
        return turns if turns and turns[0].id <= self._begun_through else []

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
        try:
            curation = await self._attempts.extract(turns, generation, is_followed=is_followed)
        except ModelError:
            # That a turn was taken back out of quarantine is in the log, too; memory keeps up with it.
            self._publish(await self._projection.settle())
            raise
        if curation is None:
            log.warning("turn %d was set aside, since every call about it was in vain", turns[0].id)
            self._publish(await self._projection.settle())
        else:
            self._publish(await self._projection.log_batch(curation))


def _pause(attempt: int, error: SpriteError) -> float:
    """Return the seconds to wait: what the server asks for, else a growing pause."""
    asked = error.retry_after if isinstance(error, ModelError) else None
    if asked is not None:
        return min(asked, LONGEST_RETRY_SECONDS)
    return backoff(attempt, FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS)
