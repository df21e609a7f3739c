"""The link: how soon after a sprite can be reached again its pages are served again, by how long it was away.

The sprite (a stand-in that speaks the protocol) and the relay are processes of their own; between them is a gate that
this process closes, which cuts what is open, and opens again.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import aiohttp

from benchmarks.bench_relay import program
from benchmarks.report import below

#: Seconds away, and how often.
OUTAGES = {0.0: 12, 0.5: 8, 2.0: 8, 10.0: 4}
#: Between two cuts: a connection that breaks at once, again and again, is tried with longer pauses.
CALM_SECONDS = 1.2


class Gate:
    """Forwards TCP to a port while it is open; closed, it refuses as a machine that sleeps."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._open: set[asyncio.StreamWriter] = set()
        self._is_open = True
        self.port = 0

    def close(self) -> None:
        """Cuts everything."""
        self._is_open = False
        for writer in tuple(self._open):
            writer.transport.abort()

    def open(self) -> None:
        """Lets connections through again."""
        self._is_open = True

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        """While the block runs."""
        server = await asyncio.start_server(self._arrive, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()
            self.close()

    async def _arrive(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._is_open:
            writer.transport.abort()
            return
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
        self._open |= {writer, far_writer}
        ways = [asyncio.create_task(_copy(reader, far_writer)), asyncio.create_task(_copy(far_reader, writer))]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        for end in (writer, far_writer):
            end.transport.abort()
            self._open.discard(end)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()


async def main() -> None:
    """Each outage in turn, several times."""
    print("Link")
    async with AsyncExitStack() as stack:
        sprites, _ = await stack.enter_async_context(program("sprite_stand_ins", "100"))
        gate = Gate(sprites)
        await stack.enter_async_context(gate.listening())
        relay, _ = await stack.enter_async_context(program("relay_process", str(gate.port)))
        session = await stack.enter_async_context(aiohttp.ClientSession())
        page = await stack.enter_async_context(session.ws_connect(f"http://127.0.0.1:{relay}/ws/one"))
        await page.send_str('{"type":"resume","id":"r","payload":{}}')
        seqs: list[int] = []

        async def until(kind: str, state: str | None = None) -> None:
            while True:
                message: dict[str, Any] = json.loads((await page.receive()).data)
                if "seq" in message:
                    seqs.append(message["seq"])
                if message["type"] == kind and state in {None, message["payload"].get("state")}:
                    return

        await until("agent_event")
        for seconds, times in OUTAGES.items():
            back: list[float] = []
            for _ in range(times):
                gate.close()
                await until("link", "unavailable")
                await asyncio.sleep(seconds)
                gate.open()
                opened = time.monotonic()
                await until("link", "ready")
                await until("agent_event")
                back.append((time.monotonic() - opened) * 1000)
                calm = asyncio.timeout(CALM_SECONDS)
                with suppress(TimeoutError):
                    async with calm:
                        await until("gap")
            below(f"served again after {seconds:g} s away", back, 1000)
    assert seqs == list(range(seqs[0], seqs[0] + len(seqs))), "an event was lost or came twice"


if __name__ == "__main__":
    asyncio.run(main())
