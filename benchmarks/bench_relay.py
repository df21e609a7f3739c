"""The relay: how much later a page hears an event than a client of the sprite itself, and 500 pages on 100 sprites.

Sprites (stand-ins that speak the protocol), relay and pages are processes of their own on one machine.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import aiohttp

from benchmarks.report import line, spread
from sprite.protocol.events import WholeText
from sprite.protocol.frames import FrameDecoder, ServerMessage, decode_server, encode
from sprite.protocol.messages import Auth, Ping
from tests.harness import ROOT

EVENTS = 1500
WARM_UP = 100
SPRITES, PAGES, RATE = 100, 500, 20.0
SECONDS = 15.0
_NS_PER_MS = 1e6


@asynccontextmanager
async def program(module: str, *arguments: str) -> AsyncIterator[tuple[int, int]]:
    """A process of this folder; yields the port it prints, and its id."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", f"benchmarks.{module}", *arguments, cwd=ROOT, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        yield int(await process.stdout.readline()), process.pid
    finally:
        process.kill()
        await process.wait()


class Direct:
    """A client of the sprite's own port."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._decoder = FrameDecoder(4 * 2**20)

    @classmethod
    async def connected(cls, port: int, sprite: str) -> Direct:
        """Connects and says hello."""
        client = cls(*await asyncio.open_connection("127.0.0.1", port))
        client._writer.write(encode(Auth(token=sprite)))
        return client

    def publish(self) -> None:
        """The sprite says something to everybody."""
        self._writer.write(encode(Ping()))

    async def event(self) -> tuple[int, WholeText]:
        """The next event, and when its bytes were here."""
        while True:
            while (frame := self._decoder.next_frame()) is None:
                self._decoder.feed(await self._reader.read(1 << 16))
            at = time.monotonic_ns()
            message: ServerMessage = decode_server(frame)
            if isinstance(message.payload, WholeText):
                return at, message.payload

    def close(self) -> None:
        """Hangs up."""
        self._writer.close()


def stamp(text: object) -> int:
    """When the event was published."""
    return int(str(text).partition(" ")[0])


async def delays() -> None:
    """One sprite, one direct client, one page. They take turns: the one's reading is not in the other's time."""
    async with AsyncExitStack() as stack:
        sprites, _ = await stack.enter_async_context(program("sprite_stand_ins", "0"))
        relay, _ = await stack.enter_async_context(program("relay_process", str(sprites)))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        page = await stack.enter_async_context(session.ws_connect(f"http://127.0.0.1:{relay}/ws/one"))
        await page.send_str('{"type":"resume","id":"r","payload":{}}')
        while json.loads((await page.receive()).data)["type"] != "state_sync":
            pass
        direct = await Direct.connected(sprites, "one")
        stack.callback(direct.close)

        async def heard_by_page() -> float:
            message = json.loads((await page.receive()).data)
            return (time.monotonic_ns() - stamp(message["payload"]["text"])) / _NS_PER_MS

        async def heard_directly() -> float:
            at, event = await direct.event()
            return (at - stamp(event.text)) / _NS_PER_MS

        at_page: list[float] = []
        at_client: list[float] = []
        for number in range(EVENTS + WARM_UP):
            for first, second, taken in (
                (heard_by_page, heard_directly, at_page),
                (heard_directly, heard_by_page, at_client),
            ):
                direct.publish()
                milliseconds = await first()
                await second()
                if number >= WARM_UP:
                    taken.append(milliseconds)
                await asyncio.sleep(0.001)
    print(f"      an event reaches a page after {spread(at_page)} ms, a direct client after {spread(at_client)} ms")
    later = statistics.median(at_page) - statistics.median(at_client)
    line("an event at a page, later than at a direct client", f"{later:.2f} ms", "<= 2 ms", ok=later <= 2.0)


class Crowd:
    """Pages that count what they hear."""

    def __init__(self) -> None:
        self.heard = 0
        self.lost = 0
        self.cut = 0
        self.delays: list[float] = []
        #: The newest event of each sprite.
        self.newest: dict[str, int] = {}

    async def page(self, session: aiohttp.ClientSession, url: str, ready: asyncio.Semaphore) -> None:
        """One page, until cancelled; releases `ready` when it is up to date."""
        async with session.ws_connect(url) as socket:
            await socket.send_str('{"type":"resume","id":"r","payload":{}}')
            last = None
            async for frame in socket:
                message = json.loads(frame.data)
                if message["type"] == "state_sync":
                    ready.release()
                if "seq" not in message:
                    continue
                self.lost += last is not None and message["seq"] != last + 1
                last = message["seq"]
                self.newest[url] = max(self.newest.get(url, 0), last)
                self.heard += 1
                self.delays.append((time.monotonic_ns() - stamp(message["payload"]["text"])) / _NS_PER_MS)
            self.cut += 1


async def crowd() -> None:
    """500 pages on 100 sprites with 2,000 events a second in all, each for five pages."""
    async with AsyncExitStack() as stack:
        sprites, _ = await stack.enter_async_context(program("sprite_stand_ins", str(RATE)))
        relay, relay_id = await stack.enter_async_context(program("relay_process", str(sprites)))
        session = await stack.enter_async_context(
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, force_close=True))
        )
        people, ready = Crowd(), asyncio.Semaphore(0)
        urls = [f"http://127.0.0.1:{relay}/ws/sprite-{number % SPRITES}" for number in range(PAGES)]
        pages = [asyncio.create_task(people.page(session, url, ready)) for url in urls]
        began = time.monotonic()
        for _ in urls:
            await ready.acquire()
        joined = time.monotonic() - began
        before, published_before, cpu_before = people.heard, sum(people.newest.values()), _cpu_seconds(relay_id)
        people.delays.clear()
        await asyncio.sleep(SECONDS)
        rate = (people.heard - before) / SECONDS
        published = (sum(people.newest.values()) - published_before) / SECONDS
        cpu = (_cpu_seconds(relay_id) - cpu_before) / SECONDS
        memory = _memory_mb(relay_id)
        for page in pages:
            page.cancel()
        await asyncio.gather(*pages, return_exceptions=True)
    deciles = statistics.quantiles(people.delays, n=100)
    print(
        f"      {PAGES} pages joined in {joined:.1f} s; {rate:,.0f} events/s delivered, {cpu:.2f} cores for the relay"
    )
    print(f"      from the sprite to the page {spread(people.delays)} ms, 99 % within {deciles[98]:.1f} ms")
    share = rate / (published * PAGES / SPRITES)
    line(
        "events delivered of those published",
        f"{share:.1%} of {published:,.0f}/s to {PAGES // SPRITES} pages each",
        ">= 99 %",
        ok=share >= 0.99,
    )
    line("memory of the bridge's relay", f"{memory:.0f} MB", "< 300 MB", ok=memory < 300)
    line(
        "pages that lost an event or were cut off", f"{people.lost + people.cut}", "0", ok=not people.lost + people.cut
    )


def _cpu_seconds(process_id: int) -> float:
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def _memory_mb(process_id: int) -> float:
    """The most that was resident."""
    status = Path(f"/proc/{process_id}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


async def main() -> None:
    """Both parts."""
    print("Relay")
    await delays()
    await crowd()


if __name__ == "__main__":
    asyncio.run(main())
