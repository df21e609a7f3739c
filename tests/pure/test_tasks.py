"""Supervised tasks: every end is reported."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from sprite.common.tasks import TaskDiedError, TaskSet, owned_task


async def for_ever() -> None:
    await asyncio.Event().wait()


async def fail() -> None:
    raise ValueError("worn out")


async def come_back() -> None:
    return


async def give_up() -> None:
    raise asyncio.CancelledError


def errors(caplog: pytest.LogCaptureFixture, level: int) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == level]


@pytest.mark.parametrize(
    ("work", "how", "cause"),
    [(fail, "failed (ValueError)", ValueError), (come_back, "returned", None), (give_up, "was cancelled", None)],
)
async def test_task_ending_before_its_block_is_dead(
    work: Callable[[], Awaitable[None]], how: str, cause: type[Exception] | None, caplog: pytest.LogCaptureFixture
) -> None:
    stop = asyncio.Event()
    with pytest.raises(TaskDiedError, match=r'The task "worker" .*; see the log') as raised:
        async with owned_task(work(), name="worker", on_death=stop.set):  # type: ignore[arg-type]
            await stop.wait()
    assert errors(caplog, logging.CRITICAL) == [f'the task "worker" {how}']
    assert isinstance(raised.value.__cause__, cause or type(None))
    if cause is not None:
        assert "worn out" in caplog.text


async def test_unreported_death_is_seen_at_block_end(caplog: pytest.LogCaptureFixture) -> None:
    deaths: list[None] = []

    async def block() -> None:
        async with owned_task(fail(), name="worker", on_death=lambda: deaths.append(None)) as task:
            while not task.done():  # noqa: ASYNC110 - the exact turn of the loop in which it ends
                await asyncio.sleep(0)

    with pytest.raises(TaskDiedError):
        await block()
    assert deaths == [None]
    assert len(errors(caplog, logging.CRITICAL)) == 1


async def test_returning_task_dies_of_errors_only(caplog: pytest.LogCaptureFixture) -> None:
    async with owned_task(come_back(), name="once", on_death=pytest.fail, may_return=True) as task:
        await task
        await asyncio.sleep(0)
    assert caplog.records == []
    with pytest.raises(TaskDiedError):
        async with owned_task(fail(), name="once", on_death=lambda: None, may_return=True) as task:
            await asyncio.wait({task})


async def test_block_end_awaits_or_cancels_task(caplog: pytest.LogCaptureFixture) -> None:
    async with owned_task(for_ever(), name="cancelled", on_death=pytest.fail) as task:
        await asyncio.sleep(0)
    assert task.cancelled()

    asked = asyncio.Event()
    async with owned_task(asked.wait(), name="asked", on_death=pytest.fail, finish=asked.set) as asked_task:
        await asyncio.sleep(0)
    assert asked_task.result() is True
    assert caplog.records == []

    async with owned_task(
        for_ever(), name="deaf", on_death=pytest.fail, finish=lambda: None, finish_seconds=0.01
    ) as task:
        await asyncio.sleep(0)
    assert task.cancelled()
    assert errors(caplog, logging.WARNING) == ['the task "deaf" did not finish in 0 s and is cancelled']


async def test_failure_during_shutdown_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    asked = asyncio.Event()

    async def work() -> None:
        await asked.wait()
        await fail()

    async with owned_task(work(), name="worker", on_death=pytest.fail, finish=asked.set):
        await asyncio.sleep(0)
    assert errors(caplog, logging.ERROR) == ['the task "worker" failed']
    assert "worn out" in caplog.text


async def test_task_set_logs_failures_and_ends_running_tasks(caplog: pytest.LogCaptureFixture) -> None:
    async with TaskSet() as tasks:
        failing, waiting = tasks.start(fail(), "failing"), tasks.start(for_ever(), "waiting")
        assert len(tasks) == 2
        await asyncio.wait({failing})
        await asyncio.sleep(0)
        assert list(tasks) == [waiting]
    assert waiting.cancelled()
    assert errors(caplog, logging.ERROR) == ['the task "failing" failed']
