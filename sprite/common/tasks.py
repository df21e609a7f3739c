"""Background tasks: supervised, retried with backoff, or in a thread for large input."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, ParamSpec, Self, TypeVar

import msgspec

log = logging.getLogger(__name__)
_T = TypeVar("_T")

#: Time for a task to finish when asked; an interrupt, the agent's end and a flush have separate limits.
FINISH_SECONDS = 60.0


class TaskDiedError(Exception):
    """A task ended before the block that needs it. Exit status 1."""


@asynccontextmanager
async def owned_task(
    work: Coroutine[Any, Any, _T],
    *,
    name: str,
    on_death: Callable[[], None],
    finish: Callable[[], None] | None = None,
    finish_seconds: float = FINISH_SECONDS,
    may_return: bool = False,
) -> AsyncIterator[asyncio.Task[_T]]:
    """Run a task while the block runs. If it ends earlier in any way, it is dead, unless it returned and `may_return`.

    A death is logged, and `on_death` is called to end the block in order; the block's end then raises
    TaskDiedError. When the block ends while the task lives, `finish` asks it to end. Without `finish`, or after
    `finish_seconds`, it is cancelled.
    """
    deaths: list[TaskDiedError] = []

    def ended(task: asyncio.Task[_T]) -> None:
        error = None if task.cancelled() else task.exception()
        returned = error is None and not task.cancelled()
        if is_leaving or deaths or (may_return and returned):
            return
        how = "returned" if returned else "was cancelled" if error is None else f"failed ({type(error).__name__})"
        deaths.append(TaskDiedError(f'The task "{name}" {how}; see the log.'))
        deaths[0].__cause__ = error
        log.critical('the task "%s" %s', name, how, exc_info=error)
        on_death()

    is_leaving = False
    task = asyncio.create_task(work, name=name)
    task.add_done_callback(ended)
    try:
        yield task
    finally:
        if task.done():
            # Its callback may be due only in the loop's next iteration.
            ended(task)
        is_leaving = True
        if not task.done():
            await _end(task, finish, finish_seconds)
        if deaths:
            raise deaths[0]


async def _end(task: asyncio.Task[Any], finish: Callable[[], None] | None, seconds: float) -> None:
    try:
        if finish is not None:
            finish()
            await asyncio.wait({task}, timeout=seconds)
            if not task.done():
                log.warning('the task "%s" did not finish in %.0f s and is cancelled', task.get_name(), seconds)
    finally:
        task.cancel()
        await asyncio.wait({task})
        _log_failure(task)


def _log_failure(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        log.error('the task "%s" failed', task.get_name(), exc_info=error)


class TaskSet:
    """Hold tasks that end by themselves; failures are logged. Tasks that still run at the block's end are cancelled."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def __iter__(self) -> Iterator[asyncio.Task[Any]]:
        return iter(tuple(self._tasks))

    def start(self, work: Coroutine[Any, Any, _T], name: str) -> asyncio.Task[_T]:
        """Start a task, and hold it until it ends."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(_log_failure)
        return task

    async def close(self) -> None:
        """Cancel all running tasks and wait for their end."""
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.close()


class Service:
    """Base class of objects used as `async with service:`; what `_open` enters on its stack ends in reverse order."""

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await self._open(stack)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._stack.aclose()

    async def _open(self, stack: AsyncExitStack) -> None:
        """Start the service, and enter on `stack` what has to end with it."""


def jittered(seconds: float) -> float:
    """Return a random part of the seconds, at least half of them ("equal jitter", AWS Architecture Blog, 2015)."""
    return seconds * random.uniform(0.5, 1.0)  # noqa: S311 - spreads callers, keeps no secret


def backoff(attempt: int, first: float, longest: float) -> float:
    """Return the seconds to wait after failed attempt number `attempt` (from 0): doubling, limited, jittered."""
    return jittered(min(longest, first * 2 ** min(attempt, 30)))


#: A long computation holds the event loop this long at a time.
_BREAK_SECONDS = 0.01


async def to_its_end(work: Coroutine[Any, Any, None], *, name: str) -> None:
    """Await the work to its end even if the caller is cancelled meanwhile; then raise the cancellation."""
    task, gone = asyncio.create_task(work, name=name), None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            gone = error
    if gone is not None:
        raise gone


async def is_set_within(event: asyncio.Event, seconds: float) -> bool:
    """Wait at most this long for an event. Return whether it is set."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


class Breaks:
    """Interrupt a long computation on the event loop: call `take` after each short step."""

    def __init__(self) -> None:
        self._since = time.perf_counter()

    async def take(self) -> None:
        """Let other tasks run if this computation has held the event loop for long enough."""
        if time.perf_counter() - self._since > _BREAK_SECONDS:
            await asyncio.sleep(0)
            self._since = time.perf_counter()


_P = ParamSpec("_P")

#: Input up to this size is processed at once, because a hop to a thread takes longer.
LARGE_BYTES = 64 * 1024
#: Searching text for secrets costs this factor more than parsing it: 4 us per character at worst.
WORDS = 16


def size_of(value: Any) -> int:
    """Return the length of a value as JSON, or a large number if it is not JSON or is nested too deeply."""
    try:
        return len(msgspec.json.encode(value))
    except (TypeError, ValueError, OverflowError, RecursionError):
        return LARGE_BYTES + 1


async def off_loop(size: int, work: Callable[_P, _T], *arguments: _P.args, **named: _P.kwargs) -> _T:
    """Return the result of `work`, run in a thread if its input of `size` bytes or characters is large."""
    if size <= LARGE_BYTES:
        return work(*arguments, **named)
    return await asyncio.to_thread(work, *arguments, **named)
