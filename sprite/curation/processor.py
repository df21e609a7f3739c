"""Processor: waiting turns -> one model call per batch -> one curation in the log -> memory.

It is stateless: a call reads its input from the log and the files, and its result is logged first. Failed turns wait
for a retry. Turns that no call can answer are quarantined, so that the others go on (`Attempts`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

from sprite.common.tasks import TaskSet, backoff, owned_task
from sprite.config import Settings
from sprite.curation.decide import Judge
from sprite.curation.extraction import Attempts, BudgetReachedError, Extractor, check_budget, log_lost_call
from sprite.curation.model import CuratorModel, UnusableAnswerError
from sprite.curation.old_files import without_old_files
from sprite.errors import ModelError, SpriteError, StorageError
from sprite.log.curations import Curation
from sprite.log.transcript import Observation, TranscriptDB
from sprite.memory.database import MemoryDB
from sprite.memory.decision import Change
from sprite.memory.folders import last_error, note_error
from sprite.memory.projection import Projection
from sprite.workspace.user_files import UserFiles, is_look

#: Idle period on a machine that can sleep, after the last client left: longer than a page reload, short enough to keep
#: the machine awake cheaply.
LEFT_SECONDS = 30.0


#: A turn may hold a reminder that only the curator sees. So fewer turns than `least_turns` are curated as well when the
#: conversation is idle, but at most once in this time.
FEW_SECONDS = 3600.0
#: The same on a machine that can sleep: it stays awake for the call, because nothing could wake it for a reminder that
#: is not known.
FEW_SECONDS_AWAKE = 600.0


class Rest:
    """Wait until a conversation has been idle for `seconds`, then call `on_rest` once.

    `can_sleep`: the machine may sleep, so it must stay awake until then. `is_left` returns whether no client is
    connected.
    """

    def __init__(
        self, seconds: float, on_rest: Callable[[], None], *, can_sleep: bool, is_left: Callable[[], bool]
    ) -> None:
        self._seconds = seconds
        self._on_rest = on_rest
        self._can_sleep = can_sleep
        self._is_left = is_left
        self._since = self._earliest = 0.0
        self._timer: asyncio.TimerHandle | None = None

    @property
    def is_awaited(self) -> bool:
        """Return whether the idle timer runs: the machine should stay awake until it ends and the turns are curated."""
        return self._timer is not None

    def begin(self, least: float = 0.0) -> None:
        """Start or restart the idle timer after a turn; it takes at least this many seconds."""
        self.end()
        self._since = asyncio.get_running_loop().time()
        self._earliest = self._since + least
        self._look_later()

    def end(self) -> None:
        """Stop the timer: the conversation goes on, or no work is left."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_later(self) -> None:
        loop = asyncio.get_running_loop()
        end = max(self._since + self._seconds, self._earliest)
        # Poll for disconnected clients only where it matters; otherwise one check at the end is enough.
        self._timer = loop.call_at(min(loop.time() + LEFT_SECONDS, end) if self._can_sleep else end, self._look)

    def _look(self) -> None:
        now = asyncio.get_running_loop().time()
        has_rested = now >= self._since + self._seconds
        if now >= self._earliest and (has_rested or (self._can_sleep and self._is_left())):
            self._timer = None
            self._on_rest()
        else:
            self._look_later()


log = logging.getLogger(__name__)

FIRST_RETRY_SECONDS = 1.0
LONGEST_RETRY_SECONDS = 300.0
#: Consecutive failures that end a flush; the next idle flush, session or start begins another.
MAX_ATTEMPTS = 8


class ObservationProcessor:
    """Curate waiting turns in the background. A *flush* curates batch after batch; only one runs at a time."""

    def __init__(
        self,
        settings: Settings,
        transcript: TranscriptDB,
        memory: MemoryDB,
        projection: Projection,
        on_change: Callable[[Change], None],
        is_left: Callable[[], bool] = lambda: True,
        user_files: UserFiles | None = None,
        on_turn: Callable[[], None] = lambda: None,
    ) -> None:
        """`is_left` returns whether no client is connected; `on_turn` is called for every turn."""
        self._settings = settings
        self._transcript = transcript
        self._memory = memory
        self._projection = projection
        self._on_change = on_change
        self._user_files = user_files
        self._on_turn = on_turn
        #: Called when a turn begins.
        self.on_turn_began: Callable[[], None] = lambda: None
        #: Held while a flush runs; whoever holds it pauses curation.
        self.one_flush = asyncio.Lock()
        self._wanted = asyncio.Event()
        self._least_wanted = self._least = settings.least_turns
        #: A flush has begun with the turns up to this id. Turns that it leaves after a failure are retried even if they
        #: are few.
        self._begun_through = 0
        self._flushes = TaskSet()
        self._judge = Judge(transcript, memory, verifies=settings.verify == "on")
        self.model = CuratorModel(settings, partial(log_lost_call, transcript))
        extractor = Extractor(transcript, memory, projection.files, self.model, self._judge)
        self._attempts = Attempts(transcript, extractor, transcript.quarantine.set_aside)
        can_sleep = settings.vm_socket.exists()
        self._few_seconds = FEW_SECONDS_AWAKE if can_sleep else FEW_SECONDS
        rested = partial(self.request, all_=True)
        self._rest = Rest(settings.idle_flush_seconds, rested, can_sleep=can_sleep, is_left=is_left)
        #: Text of the last error, or None after a success. Kept here, too, for when the disk fails.
        self.last_error = last_error(settings.run)

    @property
    def needs_machine(self) -> bool:
        """Return whether the machine should stay awake for a flush or for the idle period before one."""
        return self.one_flush.locked() or self._wanted.is_set() or self._rest.is_awaited

    # --- triggers ---

    def turn_began(self) -> None:
        """Stop the idle timer, because the conversation goes on."""
        self._rest.end()
        self.on_turn_began()

    async def turn_ended(self) -> None:
        """Request curation if a whole batch waits; otherwise wait until the conversation is idle."""
        # At once: a machine that can sleep must not be let go while the log is read.
        self._rest.begin()
        self._on_turn()
        if await self._transcript.waiting_count() >= self._settings.batch_turns:
            self.request()
        else:
            await self._await_rest()

    async def take_up(self) -> None:
        """Flush turns of an earlier process if they are enough or were tried; else wait for an idle conversation."""
        if await self._transcript.waiting_count() < self._least:
            self._begun_through = await self._transcript.quarantine.tried_through()
            if not self._begun_through:
                await self._await_rest()
                return
        self.request()

    async def _await_rest(self) -> None:
        few_wait = await self._few_wait()
        # Counted last: a flush that ends beside the end of a turn decides by the newer count.
        waiting = await self._transcript.waiting_count()
        if waiting:
            self._rest.begin(0.0 if waiting >= self._least else few_wait)
        else:
            self._rest.end()

    async def _few_wait(self) -> float:
        """Return the seconds to wait until fewer turns than `least_turns` are curated, too."""
        at = await self._transcript.curations.newest_batch_at()
        # The clock may have been set back since.
        return 0.0 if at is None else min(self._few_seconds, max(0.0, at + self._few_seconds - time.time()))

    def request(self, *, all_: bool = False) -> None:
        """Request curation in the background: of all waiting turns if `all_`, else only if enough wait."""
        if all_:
            self._least_wanted = 1
        self._wanted.set()

    async def flush_all_within(self, seconds: float) -> bool:
        """Curate all waiting turns; return False at the deadline or an error, after which the flush goes on."""
        return await self._flush_within(seconds, least=1)

    async def session_ended(self, seconds: float, *, is_stopping: bool = False) -> None:
        """Curate waiting turns if there are enough for a call, with the deadline of `flush_all_within`.

        If the process `is_stopping`, a few turns are left to the next process, because the model may be
        unreachable now.
        """
        waits = is_stopping or await self._few_wait() > 0
        await self._flush_within(seconds, least=self._least if waits else 1)

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

    async def read(self, system: str, user: str, max_tokens: int) -> str:
        """Return a model's answer to one prompt, without tools and memory. ModelError, also above the daily cap."""
        try:
            await check_budget(self._settings, self._transcript)
        except BudgetReachedError as error:
            raise ModelError(str(error)) from error
        return await self.model.read(system, user, max_tokens)

    @asynccontextmanager
    async def running(self, on_death: Callable[[], None]) -> AsyncIterator[None]:
        """Run the background worker while the block runs. Interrupted work is repeated later."""
        try:
            async with owned_task(self._work(), name="curation", on_death=on_death), self._flushes:
                yield
        finally:
            self._rest.end()
            await self.model.close()

    # --- the worker ---

    async def _work(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            least, self._least_wanted = self._least_wanted, self._least
            try:
                await self._flush_persistently(least)
            except Exception:
                # A bug must not end curation for the life of the process; the turns wait for the next trigger.
                log.exception("curation failed unexpectedly")
                self._remember("curation failed unexpectedly; see the log")

    async def _flush_persistently(self, least: int) -> None:
        attempt = 0
        while attempt < MAX_ATTEMPTS:
            try:
                await self._flush(least)
            except UnusableAnswerError as error:
                # The next call differs from this one, and the limit of calls per turn bounds the loop.
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
        log.warning("curation stopped for now after %d attempts; the turns wait", MAX_ATTEMPTS)

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
        async with self.one_flush:
            # Stop the timer even if the flush fails: the machine must not stay awake for it.
            self._rest.end()
            self._publish(await self._projection.settle())
            while turns := await self._next_batch(least):
                await self._curate(await self._with_look(turns))
                self._remember(None)
                # Turns that arrived meanwhile do not justify a call alone.
                least = self._least
            await self._await_rest()

    async def _next_batch(self, least: int) -> list[Observation]:
        """Return the oldest waiting turns, or none if fewer than `least` wait and no earlier flush included them."""
        if await self._transcript.waiting_count() >= least:
            (newest,) = await self._transcript.newest_waiting(1)
            self._begun_through = newest.id
        turns = await self._transcript.waiting(self._settings.batch_turns)
        return turns if turns and turns[0].id <= self._begun_through else []

    async def _with_look(self, turns: list[Observation]) -> list[Observation]:
        """Return a batch of turns. If it is the last one, add the changes in the user's folders."""
        following = await self._transcript.waiting(len(turns) + 1)
        if self._user_files is not None and len(following) == len(turns):
            try:
                if await self._user_files.look(turns, self._projection.files.read("files.md")):
                    following = await self._transcript.waiting(len(turns) + 1)
            except StorageError as error:
                # The turns' learnings do not wait for the folders; the next flush looks again.
                log.warning("the person's folders could not be looked at: %s", error)
        # The folder check is no turn, so it must not be left for a separate call.
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
            # The log may also record turns released from quarantine; memory follows it.
            self._publish(await self._projection.settle())
            raise
        if curation is None:
            log.warning("turn %d was set aside, because every call about it failed", turns[0].id)
            self._publish(await self._projection.settle())
        else:
            self._publish(await self._projection.log_batch(partial(self._decided, curation)))

    async def _decided(self, curation: Curation) -> Curation:
        decided = await self._judge.decided(curation)
        return await without_old_files(decided, self._memory, self._transcript, self._settings.workspace)


def _pause(attempt: int, error: SpriteError) -> float:
    """Return the seconds to wait before a retry: the server's request, else an exponential backoff."""
    asked = error.retry_after if isinstance(error, ModelError) else None
    if asked is not None:
        return min(asked, LONGEST_RETRY_SECONDS)
    return backoff(attempt, FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS)
