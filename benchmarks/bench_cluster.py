"""Several bridges over one Postgres: how soon another one takes over, what is lost with a machine, what an event costs.

The takeover is of a real sprite after `kill -9` of its bridge, timed by a page that comes again at another bridge until
it is answered there. For the cost of events sprites are stand-ins that publish at a steady rate; counted is the
processor time of all bridges. Three bridges have three times the sprites and pages of one: once with pages at their
owners, and once with pages anywhere, where two of three events make a hop. bench_cluster_idle.py counts the
statements of idle bridges.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path

import aiohttp

from benchmarks.bench_relay import program
from benchmarks.report import line, spread
from bridge.auth.people import People
from bridge.cluster.ownership import this_machine
from bridge.config import read_keys
from bridge.db.open import open_database
from bridge.replicas.keys import fixed_keys
from bridge.replicas.sealed_store import SealedStore
from bridge.replicas.store import StoredRow
from bridge.replicas.tables import DatabaseShelf
from sprite.common.locks import held
from tests.bridge_harness import BridgeProcess
from tests.cluster_stage import BRIDGES, STORE_KEY, Cluster, cluster
from tests.postgres import Server, binaries, own_server
from tests.scripted_model import OfflineModel

KILLS = 12
WANTED_SECONDS = 10.0
TURNS, STORED_SECONDS = 20, 2.0
#: For each bridge.
SPRITES, PAGES, RATE = 8, 40, 20.0
WINDOWS, WINDOW_SECONDS, ROUNDS = 4, 2.5, 2
WANTED_RATIO = 1.3


async def answered(bridge: BridgeProcess, token: str) -> None:
    """Comes as a page does, again and again, until the sprite is ready and answers."""
    while True:
        with suppress(aiohttp.ClientError, OSError, AssertionError):
            async with bridge.page(token=token) as page:
                await page.link("ready")
                await page.ask("heartbeat")
                return
        await asyncio.sleep(0.1)


async def takeovers(server: Server) -> None:
    """Kills the owner, over and over."""
    took: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        async with OfflineModel() as model, cluster(Path(folder), server, model, 1) as stage:
            ((sprite, token),) = stage.tokens.items()
            await answered(stage.slots["a"].bridge, token)
            for _ in range(KILLS):
                owner = _owner(stage, sprite)
                other = next(slot for slot in stage.slots.values() if slot is not stage.slots[owner])
                # Somebody is there, on both: the lease is renewed, and the other bridge knows who has it.
                async with (
                    stage.slots[owner].bridge.page(token=token) as at_owner,
                    other.bridge.page(token=token) as hop,
                ):
                    await at_owner.link("ready")
                    await hop.link("ready")
                    await stage.slots[owner].bridge.kill()
                    began = time.monotonic()
                await answered(other.bridge, token)
                took.append(time.monotonic() - began)
                await stage.start_again(owner)
    print(f"      {KILLS} kills: another bridge answers after {spread(took)} s, at most {max(took):.2f} s")
    p95 = statistics.quantiles(took, n=20)[-1]
    name = "takeover after kill -9 of the owner, 95 % within"
    line(name, f"{p95:.2f} s", f"< {WANTED_SECONDS:g} s", ok=p95 < WANTED_SECONDS)


async def stored(server: Server) -> None:
    """Time for which an ended turn may still be lost with its machine."""
    took: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        async with (
            OfflineModel() as model,
            cluster(Path(folder), server, model, 1, bridges=BRIDGES[:1]) as stage,
            open_database(stage.url) as database,
        ):
            store = SealedStore(DatabaseShelf(database), fixed_keys(read_keys(STORE_KEY)), 1 << 30)
            ((sprite, token),) = stage.tokens.items()
            async with stage.slots["a"].bridge.page(token=token) as page:
                await page.link("ready")
                for number in range(TURNS):
                    await page.mission(f"Say something about {number}")
                    began = time.monotonic()
                    while len(await _turns(store, sprite)) <= number:  # noqa: ASYNC110 - a bridge stores it
                        await asyncio.sleep(0.01)
                    took.append(time.monotonic() - began)
    name = "a turn that ended is in the store, 95 % within"
    p95 = statistics.quantiles(took, n=20)[-1]
    print(f"      {TURNS} turns: stored {spread(took)} s after their end")
    line(name, f"{p95:.2f} s", f"< {STORED_SECONDS:g} s", ok=p95 < STORED_SECONDS)


async def _turns(store: SealedStore, sprite: str) -> list[StoredRow]:
    return [row async for row in store.rows(sprite) if row.table == "log/observations.jsonl"]


def _owner(stage: Cluster, sprite: str) -> str:
    address = stage.owners()[sprite]
    return next(name for name in stage.slots if stage.address(name) == address)


@asynccontextmanager
async def stand_ins(stage: Cluster, folder: Path, count: int) -> AsyncIterator[list[str]]:
    """Sprites that only publish, each with a person; their names."""
    names = [f"s{number}" for number in range(count)]
    async with AsyncExitStack() as stack:
        port, _ = await stack.enter_async_context(program("sprite_stand_ins", str(RATE)))
        database = await stack.enter_async_context(open_database(stage.url))
        for name in names:
            run = folder / f"machines/{name}/.os/run"
            run.mkdir(parents=True)
            (run / "address").write_text(f"127.0.0.1:{port}")
            (run / "token").write_text(name)
            stack.enter_context(held(run / "lock", run))
            _, stage.tokens[name] = await People(database).add(name)
            home = (name, this_machine(), str(run.parents[1]))
            await database.statement("INSERT INTO homes (sprite, machine, path) VALUES (?, ?, ?)", home)
        yield names


class Audience:
    """Pages that count what they hear."""

    def __init__(self) -> None:
        self.heard = 0

    async def page(self, session: aiohttp.ClientSession, url: str, token: str, ready: asyncio.Semaphore) -> None:
        """One page, until cancelled; releases `ready` when it is up to date."""
        async with session.ws_connect(f"{url}/ws", headers={"Authorization": f"Bearer {token}"}) as socket:
            await socket.send_str('{"type":"resume","id":"r","payload":{}}')
            async for frame in socket:
                message = json.loads(frame.data)
                if message["type"] == "state_sync":
                    ready.release()
                self.heard += "seq" in message
        raise AssertionError("a page was cut off")


async def cost(server: Server, bridges: Sequence[str], *, is_anywhere: bool) -> list[float]:
    """Microseconds of the bridges' processors for each event that a page hears, window by window."""
    found: list[float] = []
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        model = await stack.enter_async_context(OfflineModel())
        stage = await stack.enter_async_context(cluster(folder, server, model, 0, bridges=bridges))
        names = await stack.enter_async_context(stand_ins(stage, folder, SPRITES * len(bridges)))
        session = await stack.enter_async_context(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)))
        audience, ready = Audience(), asyncio.Semaphore(0)
        pages: list[asyncio.Task[None]] = []
        for number in range(PAGES * len(bridges)):
            times_round, sprite = divmod(number, len(names))
            # The first one has the sprite.
            at = bridges[(sprite + (times_round if is_anywhere else 0)) % len(bridges)]
            url = stage.slots[at].bridge.url
            pages.append(asyncio.create_task(audience.page(session, url, stage.tokens[names[sprite]], ready)))
            await ready.acquire()
        for _ in range(WINDOWS):
            heard, used = audience.heard, _cpu_seconds(stage)
            await asyncio.sleep(WINDOW_SECONDS)
            found.append((_cpu_seconds(stage) - used) / (audience.heard - heard) * 1e6)
        assert not any(page.done() for page in pages)
        for page in pages:
            page.cancel()
        await asyncio.gather(*pages, return_exceptions=True)
    return found


def _cpu_seconds(stage: Cluster) -> float:
    """Of all bridges, so far."""
    used = 0
    for slot in stage.slots.values():
        for thread in Path(f"/proc/{slot.bridge.process.pid}/task").iterdir():
            with suppress(OSError):
                used += int((thread / "schedstat").read_text().split()[0])
    return used / 1e9


async def costs(server: Server, rounds: int) -> None:
    """One bridge, and three, side by side: what else the machine does costs both."""
    print(f"      for each bridge {SPRITES} sprites, {PAGES} pages, {RATE * PAGES:,.0f} events/s that are heard")
    for where, is_anywhere in (("at their owners", False), ("anywhere", True)):
        one, three = list[float](), list[float]()
        for _ in range(rounds):
            alone, together = await asyncio.gather(
                cost(server, BRIDGES[:1], is_anywhere=False), cost(server, BRIDGES, is_anywhere=is_anywhere)
            )
            one += alone
            three += together
        times = statistics.median(more / less for less, more in zip(one, three, strict=True))
        value = f"{times:.2f} x  ({spread(three)} us; one bridge: {spread(one)} us of its processor)"
        line(f"three bridges, pages {where}: an event", value, f"<= {WANTED_RATIO} x", ok=times <= WANTED_RATIO)


async def main(*, only_events: bool, rounds: int) -> None:
    """All three, or the cost of events."""
    print("Several bridges")
    if binaries() is None:
        print("  skipped: no Postgres here (Debian: apt-get install postgresql)")
        return
    with own_server() as server:
        if not only_events:
            await takeovers(server)
            await stored(server)
        await costs(server, rounds)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", action="store_true", help="only what an event costs")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often each is measured")
    chosen = parser.parse_args()
    asyncio.run(main(only_events=chosen.events, rounds=chosen.rounds))
