"""Sprites for tests of wakeups: each sleeps until it is reached, and then answers as configured."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from bridge.cluster.ownership import Ownership
from bridge.db.database import Database
from bridge.db.open import open_database
from bridge.hub.hub import Relay
from bridge.providers.provider import HostError, Reached, Report
from bridge.wakeups.waker import DueDates, Pace, Waker
from sprite.common.tasks import TaskSet
from sprite.protocol.messages import Ack, NextDue, Status
from tests.chat_stand_in import StandIn, Visitor, state_sync
from tests.relay_stage import Street, relaying

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge.hub.room import Observer
    from sprite.protocol.messages import ServerPayload

#: Delays are short in these tests.
QUICK = Pace(apart=0.05, longest_pause=0.2, unreachable=0.1, status=0.1, look=0.05)


class Dorm(Street):
    """A host of many sprites that share a port, each with its name as its token.

    `reached_names` counts the reached sprites; while it `is_down`, none is reachable.
    """

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.reached_names: Counter[str] = Counter()
        self.is_down = False

    async def reach(self, sprite: str, report: Report) -> Reached:
        self.reached_names[sprite] += 1
        if self.is_down:
            raise HostError("Its machine does not start.")
        reached = await super().reach(sprite, report)
        return Reached(reached.channel, token=sprite)


class Sleepers:
    """The sprites' behaviour: by default each has no due actions after a check, and is never busy.

    `heartbeats` counts the checks by sprite, `asked` the status requests. `next_due` is a sprite's report, `busy` the
    working sprites. The first `cuts` heartbeats are cut instead of answered; `says_at_look` is sent before the answer.
    """

    def __init__(self) -> None:
        self.heartbeats: Counter[str] = Counter()
        self.asked: Counter[str] = Counter()
        self.cuts = 0
        self.says_at_look: ServerPayload | None = None
        self.next_due: dict[str, NextDue | None] = {}
        self.busy: set[str] = set()
        self.after_look: Callable[[str], None] = lambda sprite: self.next_due.update({sprite: None})
        self.links: dict[str, Visitor] = {}

    async def serve(self, stand_in: StandIn) -> None:
        async with TaskSet() as tasks:
            while True:
                tasks.start(self._answer(await _next(stand_in)), "sprite")

    async def _answer(self, visitor: Visitor) -> None:
        sprite: str = (await visitor.welcome())["token"]
        await visitor.send(state_sync(next_due=self.next_due.get(sprite)))
        self.links[sprite] = visitor
        await self._talk(visitor, sprite)
        if self.links[sprite] is visitor:
            del self.links[sprite]

    async def _talk(self, visitor: Visitor, sprite: str) -> None:
        while (message := await visitor.next()) is not None:
            if message["type"] == "heartbeat":
                self.heartbeats[sprite] += 1
                if self.cuts:
                    self.cuts -= 1
                    visitor.cut()
                    return
                if self.says_at_look is not None:
                    await visitor.send(self.says_at_look, seq=1)
                self.after_look(sprite)
                await visitor.send(Ack("done"), reply_to=message["id"])
            elif message["type"] == "system":
                self.asked[sprite] += 1
                await visitor.send(self._status(sprite), reply_to=message["id"])

    def _status(self, sprite: str) -> Status:
        sync = state_sync()
        session = msgspec.structs.replace(sync.session, busy=sprite in self.busy)
        return Status("status", session, sync.memory, None, "ask", None, next_due=self.next_due.get(sprite))


async def _next(stand_in: StandIn) -> Visitor:
    while True:
        try:
            return await stand_in.visitor()
        except TimeoutError:
            continue


class Night:
    """All parts of one test."""

    def __init__(self, database: Database, dorm: Dorm, sleepers: Sleepers, relay: Relay, due: DueDates) -> None:
        self.database = database
        self.dorm = dorm
        self.sleepers = sleepers
        self.relay = relay
        self.due = due
        self.waker: Waker


@asynccontextmanager
async def night(
    folder: Path,
    *sprites: str,
    at: float = 1.0,
    pace: Pace = QUICK,
    may_wake: Callable[[str], bool] = lambda _: True,
    clock: Callable[[], float] | None = None,
    observers: Sequence[Observer] = (),
) -> AsyncIterator[Night]:
    """Run a bridge's waker, with sprites that asked to be woken at `at` (Unix seconds) when last connected."""

    async def may(sprite: str) -> bool:
        return may_wake(sprite)

    sleepers = Sleepers()
    sleepers.next_due = {sprite: NextDue(7, at) for sprite in sprites}
    async with StandIn() as stand_in, open_database(folder / "bridge.db") as database, TaskSet() as tasks:
        tasks.start(sleepers.serve(stand_in), "sprites")
        rows = [(sprite, at, 0.0, 0) for sprite in sprites]
        await database.write(lambda tx: tx.executemany("INSERT INTO waking VALUES (?, ?, ?, ?)", rows))
        dorm = Dorm(stand_in.port)
        async with (
            DueDates(database, died, Ownership()) as due,
            relaying(dorm, [due, *observers], linger_seconds=0.01) as relay,
        ):
            stage = Night(database, dorm, sleepers, relay, due)
            stage.waker = Waker(relay, due, may, died, pace=pace, clock=clock or time.time)
            async with stage.waker:
                yield stage


def died() -> None:
    raise AssertionError("a task died")
