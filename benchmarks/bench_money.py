"""What a model call costs more where its money is in a Postgres that bridges share: beside SQLite, paired in one run.

The two proxies, their upstream and Postgres are processes of their own on one machine. Postgres is asked to have each
commit on the disk, as it is by default. Calls take turns, so that noise hits both alike. Run as root it starts Postgres
as the user `postgres`.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from benchmarks.bench_proxy import Target, process, rate, request
from benchmarks.report import line, spread
from tests.postgres import own_server

CALLS = 500
ROUNDS = 3
SECONDS = 2.0
WANTED_MS = 5.0


@asynccontextmanager
async def calls(target: Target) -> AsyncIterator[Call]:
    """A connection to a proxy, kept open as the CLI keeps its own."""
    host, port = target.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    yield Call(reader, writer, request(target.token, stream=False, host=f"{host}:{port}"))
    writer.close()


class Call:
    """Makes one call after another."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, whole: bytes) -> None:
        self._reader = reader
        self._writer = writer
        self._whole = whole

    async def milliseconds(self) -> float:
        """From the request to the last byte of its answer."""
        began = time.perf_counter()
        self._writer.write(self._whole)
        head = await self._reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200"), head
        await self._reader.readexactly(int(head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0]))
        return (time.perf_counter() - began) * 1000


async def measure(alone: Target, shared: Target) -> None:
    """Calls one at a time, and then as many as go."""
    samples: dict[str, list[float]] = {"SQLite": [], "Postgres": []}
    async with calls(alone) as first, calls(shared) as second:
        for number in range(CALLS + 20):
            pair = await first.milliseconds(), await second.milliseconds()
            if number >= 20:
                for name, took in zip(samples, pair, strict=True):
                    samples[name].append(took)
            await asyncio.sleep(0.002)
    for name, each in samples.items():
        print(f"      a call with {name}: {spread(each)} ms")
    added = [more - less for less, more in zip(*samples.values(), strict=True)]
    ok = statistics.median(added) <= WANTED_MS
    line("added to a call by Postgres", f"{spread(added)} ms", f"<= {WANTED_MS:.0f} ms", ok=ok)
    for _ in range(ROUNDS):
        for name, target in (("SQLite", alone), ("Postgres", shared)):
            found, used = await rate(target, SECONDS)
            print(f"      50 clients of one sprite, {name}: {found:,.0f} calls/s, {used:.2f} ms of the bridge's each")


def main() -> None:
    """Prints every figure."""
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(own_server())
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            server.run(f"ALTER SYSTEM SET {setting} = on")
        server.stop()
        server.start()
        _, upstream = stack.enter_context(process("upstream"))
        targets = []
        for database in ([], [server.create()]):
            running, ready = stack.enter_context(process("proxy", upstream, *database))
            url, token, *_ = ready.split()
            targets.append(Target(url, token, running.pid))
        asyncio.run(measure(*targets))


if __name__ == "__main__":
    main()
