"""Activity during failures: people who send missions, and spenders who race for the rest of a budget."""

from __future__ import annotations

import asyncio
import json
import os
import random
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Self

import aiohttp

from tests.cluster_stage import SPENDERS, Cluster
from tests.faithful_page import FaithfulPage
from tests.harness import PATIENCE
from tests.inspection import eventually, workspace_db
from tests.scripted_model import OfflineModel

#: Number of concurrent missions.
AT_ONCE = 2 * (os.cpu_count() or 1)
#: Daily budget of each spender, and of each sprite. A spender's is an exact number of calls, and it tries to make more.
#: Sprites have enough although the reservations of a killed bridge last 15 minutes, some $3 a call.
CALLS = 16
SPENT = {"model": "claude-opus-4-1", "max_tokens": 32_000}
SPENT_USD = 2.4
DAILY_USD = CALLS * SPENT_USD
SPEND = "spend it all, "
#: Pause before each mission of a person.
MOST_PAUSE = 3.0
MISSIONS = ("Say something about {n}", "run `echo {n}`", "make a table of apples {n}, pears 5", "Write a note on {n}")


class Person:
    """Sends missions from any of their pages, one after another, as long as the failures last."""

    def __init__(self, sprite: str, pages: list[FaithfulPage], rng: random.Random, turns: asyncio.Semaphore) -> None:
        self.sprite = sprite
        self.pages = pages
        self.typed: list[str] = []
        #: Missions that ended with their machine.
        self.crashed: set[str] = set()
        self._rng = rng
        self._turns = turns
        self._typing = asyncio.Lock()

    def is_over(self, mission_id: str) -> bool:
        """Return whether any of the pages has received its end."""
        return any(mission_id in page.ended for page in self.pages)

    async def mission(self) -> None:
        """Run one mission, in turn, to its end."""
        async with self._typing, self._turns:
            text = self._rng.choice(MISSIONS).format(n=len(self.typed))
            mission = await self.begin(text)
            while not self.is_over(mission):  # noqa: ASYNC110 - of several pages, the first that hears
                await asyncio.sleep(0.05)

    @asynccontextmanager
    async def at_rest(self) -> AsyncIterator[None]:
        """Keep their missions idle while the block runs, except those that the block starts with `begin`."""
        async with self._typing:
            yield

    async def begin(self, text: str) -> str:
        """Send a mission, whether or not others run; return its id."""
        self.typed.append(await self._rng.choice(self.pages).say(text))
        return self.typed[-1]

    async def talk(self) -> None:
        while True:
            await asyncio.sleep(self._rng.uniform(0, MOST_PAUSE))
            await self.mission()

    def has_heard_all(self, workspace: Path) -> bool:
        """Return whether every page has the end of every mission, and the newest text.

        A mission that crashed with its machine ends when another one begins, without an event.
        """
        if not all(set(self.typed) - self.crashed <= set(page.ended) for page in self.pages):
            return False
        (newest,) = workspace_db(workspace, "SELECT max(seq) AS seq FROM events")
        return all(page.seqs[-1] >= newest["seq"] for page in self.pages)


class Spenders:
    """Each failure starts a race for the rest of a budget, through all bridges; each race has its own budget.

    `async with Spenders(...) as spenders:`, with the number of budgets.
    """

    def __init__(self, cluster: Cluster, model: OfflineModel, budgets: int) -> None:
        self.names = SPENDERS[:budgets]
        assert len(self.names) == budgets
        self._cluster = cluster
        self._left = list(self.names)
        #: The calls that the model itself counted, independent of every bridge.
        self.upstream: Counter[str] = Counter()
        self.statuses: Counter[int] = Counter()
        self._refused: Counter[str] = Counter()
        self._tasks: list[asyncio.Task[None]] = []
        model.script.agent(self._answer, audience="any")

    def _answer(self, body: dict[str, Any]) -> dict[str, Any] | None:
        said = json.dumps(body["messages"])
        spender = next((name for name in self.names if f"{SPEND}{name}" in said), None)
        if spender is None:
            return None
        self.upstream[spender] += 1
        return {"for": "any", "delay": 0.3, "usage": {"output_tokens": SPENT["max_tokens"]}}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def begin(self) -> None:
        """Start to spend the next budget, and return meanwhile. The spenders continue even if the budget is empty."""
        spender = self._left.pop(0)
        self._tasks += [asyncio.create_task(self._spend(spender)) for _ in range(3)]
        await eventually(lambda: self.upstream[spender] >= CALLS // 4, f"{spender} spends nothing")

    async def end(self) -> None:
        """Return once every budget is used up."""
        await eventually(lambda: len(+self._refused) == len(self.names), "a budget is not used up")
        assert not [task for task in self._tasks if task.done()]

    async def _spend(self, spender: str) -> None:
        """Continue after the budget is used up, too."""
        headers = {"x-api-key": self._cluster.spender_tokens[spender]}
        body = {**SPENT, "messages": [{"role": "user", "content": f"{SPEND}{spender}"}]}
        timeout = aiohttp.ClientTimeout(total=PATIENCE)
        async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(force_close=True)) as http:
            while True:
                with suppress(aiohttp.ClientError, TimeoutError):
                    url = f"{self._cluster.balancer.url}/v1/messages"
                    async with http.post(url, json=body, headers=headers) as response:
                        await response.read()
                        self.statuses[response.status] += 1
                        # The second error occurs if calls of a killed bridge reserve the rest.
                        self._refused[spender] += response.status in {402, 429}
                await asyncio.sleep(0.5 if self._refused[spender] else 0.02)


@asynccontextmanager
async def at_work(people: list[Person]) -> AsyncIterator[None]:
    """Let everybody send missions while the block runs."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(person.talk()) for person in people]
        yield
        for task in tasks:
            task.cancel()


async def begin(people: list[Person]) -> float:
    """Connect everybody and run their first missions, in waves; return the longest duration of a wave in seconds."""
    took = [0.0]
    for wave in (people[at : at + AT_ONCE] for at in range(0, len(people), AT_ONCE)):
        began = time.monotonic()
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*(person.mission() for person in wave))
        took.append(time.monotonic() - began)
    return max(took)
