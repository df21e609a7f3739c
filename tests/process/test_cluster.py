"""Three bridges over one Postgres, people on all of them, and one plug pulled after another while agents work.

`make soak` has it done with 40 sprites and 200 pages. What is tried is the plugs, not the machine: agents are real, and
one that begins takes a processor for seconds, so no more than `AT_ONCE` missions run at a time, however many agents
there are; the other agents, and all pages, are there all the while. The agents begin in waves of that size, too,
and how long a wave takes says how long anything later may take.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import random
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Self

import aiohttp

from bridge.cluster.lease_book import LEASE_SECONDS
from bridge.database import open_database
from bridge.offline.model import OfflineModel
from bridge.store.key_text import read_keys
from bridge.store.keys import FixedKeys
from bridge.store.sealed_store import SealedStore
from bridge.store.shelves import DatabaseShelf
from bridge.store.upkeep import verified
from tests.cluster_stage import BRIDGES, SPENDERS, STORE_KEY, Cluster, cluster
from tests.delays import Delays
from tests.faithful_page import FaithfulPage, staying
from tests.harness import PATIENCE, observations
from tests.inspection import durable_events, endings, eventually, transcript, workspace_db
from tests.postgres import own_server

#: `make soak` asks for more.
SPRITES = int(os.environ.get("SOAK_SPRITES") or 6)
PAGES = int(os.environ.get("SOAK_PAGES") or 4 * SPRITES)
#: How long a bridge is stopped, and how long one is cut off from the others: longer than a lease in any case, and than
#: three signs of life that do not come.
STOPPED_SECONDS = float(os.environ.get("SOAK_STOPPED_SECONDS") or LEASE_SECONDS + 2)
CUT_OFF_SECONDS = LEASE_SECONDS + 2
#: So many connections to each bridge from the others are cut somewhere.
CUTS = SPRITES
#: So many missions run at a time.
AT_ONCE = 2 * (os.cpu_count() or 1)
#: What each spender, and each sprite, may spend a day. For spenders it is so many calls exactly, and they try to make
#: more. Sprites have enough although what a killed bridge was calling for them is held for 15 minutes, some $3 a call.
CALLS = 16
SPENT = {"model": "claude-opus-4-1", "max_tokens": 32_000}
SPENT_USD = 2.4
DAILY_USD = CALLS * SPENT_USD
SPEND = "spend it all, "
#: A bridge that has lost a sprite has said its last word so long after another took it, this test's own delays aside.
WORD_SECONDS = 2.0
#: Before each mission of a person.
MOST_PAUSE = 3.0
MISSIONS = ("Say something about {n}", "run `echo {n}`", "make a table of apples {n}, pears 5", "Write a note on {n}")


class Person:
    """Types missions into whichever of their pages, one after another, as long as the storm lasts."""

    def __init__(self, sprite: str, pages: list[FaithfulPage], rng: random.Random, turns: asyncio.Semaphore) -> None:
        self.sprite = sprite
        self.pages = pages
        self.typed: list[str] = []
        self._rng = rng
        self._turns = turns

    def is_over(self, mission_id: str) -> bool:
        """Whether any of the pages has heard of its end."""
        return any(mission_id in page.ended for page in self.pages)

    async def mission(self) -> None:
        """One mission, when it is their turn, to its end."""
        async with self._turns:
            text = self._rng.choice(MISSIONS).format(n=len(self.typed))
            page = self._rng.choice(self.pages)
            self.typed.append(await page.say(text))
            while not self.is_over(self.typed[-1]):  # noqa: ASYNC110 - of several pages, the first that hears
                await asyncio.sleep(0.05)

    async def talk(self) -> None:
        while True:
            await asyncio.sleep(self._rng.uniform(0, MOST_PAUSE))
            await self.mission()

    def has_heard_all(self, workspace: Path) -> bool:
        """Whether every page knows how every mission ended, and what was said last of all."""
        if not all(set(self.typed) <= set(page.ended) for page in self.pages):
            return False
        (newest,) = workspace_db(workspace, "SELECT max(seq) AS seq FROM events")
        return all(page.seqs[-1] >= newest["seq"] for page in self.pages)


class Spenders:
    """Whenever a plug is pulled there is a race for what is left of a budget, through all bridges; each has its own.

    `async with Spenders(...) as spenders:`.
    """

    def __init__(self, cluster: Cluster, model: OfflineModel) -> None:
        self._cluster = cluster
        self._left = list(SPENDERS)
        #: What the model was asked for and has counted, whatever any bridge says of it.
        self.upstream: Counter[str] = Counter()
        self.statuses: Counter[int] = Counter()
        self._refused: Counter[str] = Counter()
        self._tasks: list[asyncio.Task[None]] = []
        model.script.agent(self._answer, audience="any")

    def _answer(self, body: dict[str, Any]) -> dict[str, Any] | None:
        said = json.dumps(body["messages"])
        spender = next((name for name in SPENDERS if f"{SPEND}{name}" in said), None)
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
        """Returns while the next budget is being spent. Whoever spends goes on, also where there is nothing left."""
        spender = self._left.pop(0)
        self._tasks += [asyncio.create_task(self._spend(spender)) for _ in range(3)]
        await eventually(lambda: self.upstream[spender] >= CALLS // 4, f"{spender} spends nothing")

    async def end(self) -> None:
        """Returns when nothing is left of any budget."""
        await eventually(lambda: len(+self._refused) == len(SPENDERS), "a budget is not used up")
        assert not [task for task in self._tasks if task.done()]

    async def _spend(self, spender: str) -> None:
        """Goes on where the budget is used up, too."""
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
                        # The second where it is a killed bridge's calls that hold what is left.
                        self._refused[spender] += response.status in {402, 429}
                await asyncio.sleep(0.5 if self._refused[spender] else 0.02)


@asynccontextmanager
async def at_work(people: list[Person]) -> AsyncIterator[None]:
    """Everybody types while the block runs."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(person.talk()) for person in people]
        yield
        for task in tasks:
            task.cancel()


async def begin(people: list[Person]) -> float:
    """Everybody comes and has a first mission, in waves; how long a wave takes here at most, in seconds."""
    took = [0.0]
    for wave in (people[at : at + AT_ONCE] for at in range(0, len(people), AT_ONCE)):
        began = time.monotonic()
        async with asyncio.timeout(PATIENCE):
            await asyncio.gather(*(person.mission() for person in wave))
        took.append(time.monotonic() - began)
    return max(took)


async def storm(stage: Cluster, people: list[Person], spenders: Spenders, patience: float) -> None:
    """One plug after another, of the bridge with most to lose; between them everybody hears a mission end again."""
    plugs: dict[str, Callable[[str], Awaitable[None]]] = {
        "kill -9": stage.kill,
        f"stopped for {STOPPED_SECONDS:g} s": lambda name: stage.pause(name, STOPPED_SECONDS),
        f"cut off from the others for {CUT_OFF_SECONDS:g} s": lambda name: stage.cut_off(name, CUT_OFF_SECONDS),
        "Postgres restarted": lambda _: asyncio.to_thread(stage.restart_postgres),
        "kill -9, and back at once": lambda name: _killed_and_back(stage, name),
    }
    assert len(plugs) == len(SPENDERS)
    for what, pull in plugs.items():
        began = time.monotonic()
        await spenders.begin()
        await pull(stage.busiest())
        await _all_go_on(stage, people, patience)
        say(f"{what}: all go on {time.monotonic() - began:.0f} s after it")
        for name in [slot.name for slot in stage.slots.values() if not slot.is_up]:
            await stage.start_again(name)
    await spenders.end()


async def _killed_and_back(stage: Cluster, name: str) -> None:
    await stage.kill(name)
    await stage.start_again(name)


async def _all_go_on(stage: Cluster, people: list[Person], patience: float) -> None:
    """Until each sprite has ended a mission that was typed from here on, as somebody hears."""
    counts = [len(person.typed) for person in people]

    def waiting() -> list[Person]:
        pairs = zip(people, counts, strict=True)
        return [person for person, count in pairs if not any(map(person.is_over, person.typed[count:]))]

    try:
        await eventually(lambda: not waiting(), "", patience)
    except AssertionError:
        raise AssertionError([_how_it_stands(stage, person) for person in waiting()]) from None


def _how_it_stands(stage: Cluster, person: Person) -> dict[str, Any]:
    inbox = workspace_db(stage.workspace(person.sprite), "SELECT id, status FROM missions")
    return {
        "sprite": person.sprite,
        "owner": stage.owners().get(person.sprite),
        "not over": {id_: row["status"] for row in inbox if not person.is_over(id_ := row["id"])},
        "typed last": person.typed[-1],
        "ready": [page.is_ready for page in person.pages],
        "unsaid": [list(page.unsaid) for page in person.pages],
    }


def say(words: str) -> None:
    """Where it fails pytest shows it; `make soak` in any case."""
    print(words, flush=True)  # noqa: T201


async def test_one_plug_after_another_is_pulled_and_nothing_is_lost_or_done_twice(
    model: OfflineModel, tmp_path: Path
) -> None:
    seed = int(os.environ.get("CLUSTER_SEED") or secrets.randbits(32))
    say(f"CLUSTER_SEED={seed}")
    rng, turns = random.Random(seed), asyncio.Semaphore(AT_ONCE)  # noqa: S311 - no secret
    with own_server() as server:
        flags = ("--daily-usd", str(DAILY_USD))
        async with cluster(tmp_path, server, model, SPRITES, *flags, cuts=CUTS, seed=seed) as stage, Delays() as delays:
            doors = itertools.cycle(BRIDGES)
            people = [
                Person(sprite, [stage.page(sprite, next(doors)) for _ in range(PAGES // SPRITES)], rng, turns)
                for sprite in stage.sprites
            ]
            pages = [page for person in people for page in person.pages]
            async with staying(*pages), Spenders(stage, model) as spenders:
                wave = await begin(people)
                # Everybody has a turn, and a takeover takes its time.
                patience = PATIENCE + 3 * wave * len(people) / AT_ONCE
                say(f"{len(people)} sprites, {len(pages)} pages; {AT_ONCE} first missions at a time took {wave:.1f} s")
                async with at_work(people):
                    await storm(stage, people, spenders, patience)
                for person in people:
                    heard_all = partial(person.has_heard_all, stage.workspace(person.sprite))
                    await eventually(heard_all, "a page did not hear of a mission's end", patience)
                for person in people:
                    every_event_once_and_in_order(person, stage.workspace(person.sprite))
                    no_mission_twice(person, stage.workspace(person.sprite))
            missions, events = sum(len(person.typed) for person in people), sum(len(page.events) for page in pages)
            connections = sum(page.connections for page in pages)
            say(f"{events} events, each once and in order, at {len(pages)} pages over {connections} connections")
            say(f"{missions} missions, none twice")
            one_owner_at_every_moment(stage, delays.longest)
            no_budget_exceeded(stage, spenders)
            await the_store_has_everything(stage, patience)


def every_event_once_and_in_order(person: Person, workspace: Path) -> None:
    said = {event["seq"]: (event["type"], event["payload"]) for event in durable_events(workspace)}
    for page in person.pages:
        assert page.began_anew == 1
        # The first is where it began.
        assert page.seqs == list(range(page.seqs[0], page.seqs[-1] + 1))
        assert page.seqs[-1] == max(said)
        assert page.events == {seq: event for seq, event in said.items() if seq > page.seqs[0]}
        assert page.unsaid == {}


def no_mission_twice(person: Person, workspace: Path) -> None:
    assert {mission: len(ends) for mission, ends in endings(workspace).items()} == dict.fromkeys(person.typed, 1)
    observed = Counter(turn["mission_id"] for turn in observations(workspace) if turn["mission_id"])
    assert observed == Counter(person.typed)
    inbox = workspace_db(workspace, "SELECT id, status FROM missions")
    assert sorted(row["id"] for row in inbox) == sorted(person.typed)
    assert {row["status"] for row in inbox} == {"complete"}


def one_owner_at_every_moment(stage: Cluster, delay: float) -> None:
    """By the database's own trace of its leases, and by all that bridges said to each sprite.

    No lease overlaps the one before it; the sprite welcomed these leases and no others, in this order; a bridge said
    nothing more once another one had the sprite; and had one done so, the sprite would have done none of it.
    """
    owners = words = 0
    for sprite, tap in stage.taps.items():
        history = stage.ask("SELECT * FROM lease_history WHERE sprite = %s ORDER BY number", sprite)
        taken = {1: history[0]}
        for before, now in itertools.pairwise(history):
            if now["owner"] == before["owner"]:
                assert now["epoch"] == before["epoch"]
            else:
                assert now["epoch"] == before["epoch"] + 1
                assert now["at"] >= before["expires_at"], "taken before it had ended"
                taken[now["epoch"]] = now
        owners += len(taken) - 1
        assert tap.out_of_turn == []
        epochs = [lease.epoch for lease in tap.welcomed]
        assert epochs == sorted(epochs)
        assert {(lease.epoch, lease.owner) for lease in tap.welcomed} <= {(n, row["owner"]) for n, row in taken.items()}
        for said in tap.said:
            following = taken.get(said.lease.epoch + 1)
            if following is not None:
                late = said.at - following["at"]
                assert late <= WORD_SECONDS + delay, f"{said} was said {late:.1f} s after another bridge had {sprite}"
        words += len(tap.said)
        (kept,) = workspace_db(stage.workspace(sprite), "SELECT value FROM meta WHERE key = 'lease'")
        assert json.loads(kept["value"]) == {"owner": history[-1]["owner"], "epoch": history[-1]["epoch"]}
        assert epochs[-1] == history[-1]["epoch"]
    assert owners, "nothing ever changed hands"
    refusals = sum(tap.refusals for tap in stage.taps.values())
    say(f"{owners} changes of owner: no two leases overlap; of {words} words of bridges none was out of turn")
    say(f"{refusals} times a sprite refused an older lease; this process noticed things at most {delay:.2f} s late")


def no_budget_exceeded(stage: Cluster, spenders: Spenders) -> None:
    """By what the database has of calls, and by what the model counted itself."""
    calls = stage.ask("SELECT *, coalesce(spent_usd, held_usd) AS usd, floor(at / 86400) AS day FROM calls ORDER BY at")
    assert all(call["usd"] <= call["held_usd"] for call in calls)
    days = {(call["sprite"], call["day"]) for call in calls}
    for sprite, day in days:
        own = [call["usd"] for call in calls if (call["sprite"], call["day"]) == (sprite, day)]
        # Whoever has anything left may begin one more call.
        assert sum(own) - max(own) < DAILY_USD, sprite
    for spender in SPENDERS:
        spent = [call["usd"] for call in calls if call["sprite"] == spender]
        assert sum(spent) > DAILY_USD - SPENT_USD, "it was never close"
        assert spenders.upstream[spender] <= CALLS * len([day for name, day in days if name == spender])
        assert spenders.upstream[spender] <= len(spent)
    assert set(spenders.statuses) <= {200, 402, 429, 500, 502, 503, 529}, spenders.statuses
    # Nobody was answered who had not paid, and what a killed bridge held is held still.
    settled = [call for call in calls if call["sprite"] in SPENDERS and call["state"] == "settled"]
    assert spenders.statuses[200] <= len(settled)
    counted = ", ".join(f"{spenders.upstream[name]}" for name in SPENDERS)
    say(f"{len(SPENDERS)} budgets of {CALLS} calls, one a plug: the model was called {counted} times")
    say(f"the spenders were answered {dict(spenders.statuses)}")


async def the_store_has_everything(stage: Cluster, patience: float) -> None:
    async with open_database(stage.url) as database:
        store = SealedStore(DatabaseShelf(database), FixedKeys(read_keys(STORE_KEY)), 2**31)
        for sprite in stage.sprites:
            async with asyncio.timeout(patience):
                while not await has_all(store, sprite, stage.workspace(sprite)):  # noqa: ASYNC110 - a bridge stores it
                    await asyncio.sleep(0.1)
            assert (await verified(store, sprite)).wrong == []
            assert transcript(stage.workspace(sprite), "PRAGMA integrity_check") == [{"integrity_check": "ok"}]


async def has_all(store: SealedStore, sprite: str, workspace: Path) -> bool:
    if not (await store.position(sprite)).is_whole:
        return False
    kept = [row.row["id"] async for row in store.rows(sprite) if row.table == "log/observations.jsonl"]
    return kept == [row["id"] for row in observations(workspace)]
