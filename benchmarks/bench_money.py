"""Compare the booked cost of cut answers with the API's charge, and the cost of a call with and without Postgres.

The cuts: answers with thinking (summarised or hidden), text and tool calls, at 25 to 110 tokens a second, each cut at a
random moment; the truth is the prompt and what the model had written by then. Prompts are like the one before, and nine
tenths of them are in the cache. Before `message_start` the prompt's usage is not known: it counts as written to the
cache. A cheaper guess would let a sprite that hangs up early pass its budget. An error there costs nothing.

The calls: their money in a Postgres that bridges share beside SQLite, paired in one run.
The two proxies, their upstream and Postgres are processes of their own on one machine. Postgres is asked to have each
commit on the disk, as it is by default. Calls alternate, so that noise affects both. Run as root it starts Postgres
as the user `postgres`.
"""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from msgspec.structs import replace

from benchmarks.bench_proxy import Target, process, rate, request
from benchmarks.report import line, spread
from bridge.proxy.upstream import Models
from bridge.proxy.usage_meter import PromptSizes, SseMeter
from sprite.common.prices import Usage
from tests import api_grammar
from tests.cut_answers import MODEL, cut_answer
from tests.postgres import own_server
from tests.scripted_model import error_event

CUTS = 1000
#: Tokens that the API may add to a prompt; the bridge does not know their number.
ADDED_TOKENS = 2000
#: Model of the agent.
MAX_TOKENS = 64_000
CALLS = 500
ROUNDS = 3
SECONDS = 2.0
WANTED_MS = 5.0


@dataclass(frozen=True)
class Booked:
    """One cut answer, in US dollars."""

    held: float
    booked: float
    true: float
    has_begun: bool


def booked(seed: int) -> Booked:
    """Booked cost of randomly cut answers."""
    cut = cut_answer(seed)
    price = Models().price(MODEL)
    assert price is not None
    held = price.most(cut.request_bytes + ADDED_TOKENS, MAX_TOKENS)
    usage = replace(cut.reading.usage, output=min(cut.reading.usage.output, MAX_TOKENS))
    if not cut.reading.has_prompt:
        sizes = PromptSizes()
        thought = cut.request_bytes + ADDED_TOKENS
        sizes.note("ada", MODEL, thought, cut.truth.prompt_tokens)
        usage = Usage(cache_write=sizes.most("ada", MODEL, thought), output=usage.output, is_us_only=True)
    return Booked(held, min(price.cost(usage), held), price.cost(cut.truth), cut.has_begun)


def measure_cuts() -> None:
    """Books random cut answers."""
    cuts = [booked(seed) for seed in range(CUTS)]
    for name, some in (
        ("after its beginning", [cut for cut in cuts if cut.has_begun]),
        ("before its beginning", [cut for cut in cuts if not cut.has_begun]),
    ):
        ratios = sorted(cut.booked / cut.true for cut in some)
        before = statistics.median(cut.held / cut.true for cut in some)
        print(
            f"      {len(some)} cut {name}, booked / true: median {statistics.median(ratios):.2f}, "
            f"95 % {ratios[int(len(ratios) * 0.95)]:.2f}, most {ratios[-1]:.2f} (all that was held: {before:.0f})"
        )
    total, true = sum(cut.booked for cut in cuts), sum(cut.true for cut in cuts)
    print(f"      all together: ${total:.2f} for ${true:.2f}, {total / true:.2f}")
    least = min(cut.booked / cut.true for cut in cuts)
    line("booked / true of a cut answer, the least", f"{least:.3f}", ">= 1", ok=least >= 1)
    most = max(cut.booked / cut.held for cut in cuts)
    line("booked / held of a cut answer, the most", f"{most:.3f}", "<= 1", ok=most <= 1)
    refused = [is_refused(kind) for kind in api_grammar.ERRORS]
    value = f"{refused.count(True)} of {len(refused)} types"
    line("errors before message_start that cost nothing", value, "all", ok=all(refused))


def is_refused(kind: str) -> bool:
    """Return whether a stream that is an error of this type is booked as free."""
    meter = SseMeter()
    meter.feed(error_event(kind, "no"))
    return meter.read().is_refused


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
    measure_cuts()
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
