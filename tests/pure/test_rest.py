"""A conversation is flushed once when idle; on a sleeping host sooner, if nobody is connected."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from sprite.curation.processor import LEFT_SECONDS, Rest


class Clock(asyncio.SelectorEventLoop):
    """A loop whose time only a test advances."""

    now = 0.0

    def time(self) -> float:
        return self.now

    def passes(self, seconds: float) -> None:
        """Advance time in small steps, and run everything that is due."""
        end = self.now + seconds
        while self.now < end:
            self.now += min(end - self.now, 10)
            self.run_until_complete(asyncio.sleep(0))
            self.run_until_complete(asyncio.sleep(0))


class Seen:
    """Records the flushes, and whether anybody is connected."""

    def __init__(self, clock: Clock, *, can_sleep: bool) -> None:
        self.rests = 0
        self.is_left = False
        self._clock = clock
        self.rest = Rest(600, self._rested, can_sleep=can_sleep, is_left=lambda: self.is_left)

    def _rested(self) -> None:
        self.rests += 1

    def turn(self, least: float = 0.0) -> None:
        async def end() -> None:
            self.rest.begin(least)

        self._clock.run_until_complete(end())


@pytest.fixture
def clock() -> Iterator[Clock]:
    clock = Clock()
    yield clock
    clock.close()


@pytest.mark.parametrize("can_sleep", [False, True])
def test_idle_conversation_is_flushed_once(clock: Clock, can_sleep: bool) -> None:
    seen = Seen(clock, can_sleep=can_sleep)
    seen.turn()
    clock.passes(599)
    assert (seen.rests, seen.rest.is_awaited) == (0, True)
    clock.passes(2)
    assert (seen.rests, seen.rest.is_awaited) == (1, False)
    clock.passes(3600)
    assert seen.rests == 1


@pytest.mark.parametrize("can_sleep", [False, True])
def test_short_pauses_do_not_flush(clock: Clock, can_sleep: bool) -> None:
    seen = Seen(clock, can_sleep=can_sleep)
    for _ in range(30):
        seen.turn()
        clock.passes(60)
    assert seen.rests == 0


def test_active_conversation_is_not_flushed(clock: Clock) -> None:
    seen = Seen(clock, can_sleep=True)
    seen.turn()
    seen.rest.end()
    clock.passes(3600)
    assert (seen.rests, seen.rest.is_awaited) == (0, False)


def test_sleeping_host_flushes_early_after_disconnect(clock: Clock) -> None:
    seen = Seen(clock, can_sleep=True)
    seen.turn()
    clock.passes(200)
    seen.is_left = True
    clock.passes(LEFT_SECONDS)
    assert (seen.rests, seen.rest.is_awaited) == (1, False)


def test_sleepless_host_waits_despite_disconnect(clock: Clock) -> None:
    seen = Seen(clock, can_sleep=False)
    seen.is_left = True
    seen.turn()
    clock.passes(599)
    assert seen.rests == 0


def test_page_reload_is_no_disconnect(clock: Clock) -> None:
    seen = Seen(clock, can_sleep=True)
    seen.turn()
    seen.is_left = True
    clock.passes(LEFT_SECONDS - 1)
    seen.is_left = False
    clock.passes(60)
    assert seen.rests == 0


@pytest.mark.parametrize("can_sleep", [False, True])
def test_few_turns_wait_for_their_time(clock: Clock, can_sleep: bool) -> None:
    seen = Seen(clock, can_sleep=can_sleep)
    seen.is_left = True
    seen.turn(3600)
    clock.passes(3599)
    assert (seen.rests, seen.rest.is_awaited) == (0, True)
    clock.passes(LEFT_SECONDS)
    assert (seen.rests, seen.rest.is_awaited) == (1, False)
