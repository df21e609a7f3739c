"""A conversation rests once, after its time; on a machine that can sleep sooner, where nobody is connected."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from sprite.curation.processor import LEFT_SECONDS, Rest


class Clock(asyncio.SelectorEventLoop):
    """A loop in which no time passes but what a test lets pass."""

    now = 0.0

    def time(self) -> float:
        return self.now

    def passes(self, seconds: float) -> None:
        """Lets time pass, in small steps, and whatever falls into it happen."""
        end = self.now + seconds
        while self.now < end:
            self.now += min(end - self.now, 10)
            self.run_until_complete(asyncio.sleep(0))
            self.run_until_complete(asyncio.sleep(0))


class Seen:
    """What a rest led to, and whether anybody is connected."""

    def __init__(self, clock: Clock, *, can_sleep: bool) -> None:
        self.rests = 0
        self.is_left = False
        self._clock = clock
        self.rest = Rest(600, self._rested, can_sleep=can_sleep, is_left=lambda: self.is_left)

    def _rested(self) -> None:
        self.rests += 1

    def turn(self) -> None:
        async def end() -> None:
            self.rest.begin()

        self._clock.run_until_complete(end())


@pytest.fixture
def clock() -> Iterator[Clock]:
    clock = Clock()
    yield clock
    clock.close()


@pytest.mark.parametrize("can_sleep", [False, True])
def test_a_conversation_rests_once_after_its_time(clock: Clock, can_sleep: bool) -> None:
    seen = Seen(clock, can_sleep=can_sleep)
    seen.turn()
    clock.passes(599)
    assert (seen.rests, seen.rest.is_awaited) == (0, True)
    clock.passes(2)
    assert (seen.rests, seen.rest.is_awaited) == (1, False)
    clock.passes(3600)
    assert seen.rests == 1


@pytest.mark.parametrize("can_sleep", [False, True])
def test_pauses_are_no_rest(clock: Clock, can_sleep: bool) -> None:
    seen = Seen(clock, can_sleep=can_sleep)
    for _ in range(30):
        seen.turn()
        clock.passes(60)
    assert seen.rests == 0


def test_a_conversation_that_goes_on_does_not_rest(clock: Clock) -> None:
    seen = Seen(clock, can_sleep=True)
    seen.turn()
    seen.rest.end()
    clock.passes(3600)
    assert (seen.rests, seen.rest.is_awaited) == (0, False)


def test_what_can_sleep_waits_less_for_people_who_have_left(clock: Clock) -> None:
    seen = Seen(clock, can_sleep=True)
    seen.turn()
    clock.passes(200)
    seen.is_left = True
    clock.passes(LEFT_SECONDS)
    assert (seen.rests, seen.rest.is_awaited) == (1, False)


def test_what_does_not_sleep_waits_its_time_whoever_has_left(clock: Clock) -> None:
    seen = Seen(clock, can_sleep=False)
    seen.is_left = True
    seen.turn()
    clock.passes(599)
    assert seen.rests == 0


def test_a_reload_of_the_page_is_no_leaving(clock: Clock) -> None:
    seen = Seen(clock, can_sleep=True)
    seen.turn()
    seen.is_left = True
    clock.passes(LEFT_SECONDS - 1)
    seen.is_left = False
    clock.passes(60)
    assert seen.rests == 0
