"""A call of a connection's tool through a sprite's tool and a whole bridge, against the same call made directly.

Server and bridge are processes of their own; only the bridge's limit of calls a minute is lifted. Also the size of a
session's first request while 200 tools are connected. An argument sets the number of calls.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mcp import Client

from benchmarks.report import below, line, ratio
from bridge.__main__ import main as bridge_command
from bridge.connections.connections import Connections
from sprite.agent.tools.connections import ConnectionTools
from tests.bridge_harness import bridge_process
from tests.mcp_server import server, serving
from tests.process.test_connection_tools import variables_of_sprite
from tests.scripted_model import OfflineModel

BLOCK, TOOLS = 100, 200
WORDS = {"words": "how many tickets are open?"}


async def serve() -> None:
    """Serve until the end of stdin; print the URL."""
    async with serving(server(tools=TOOLS)) as url:
        print(url, flush=True)
        await asyncio.to_thread(sys.stdin.read)


@asynccontextmanager
async def server_process() -> AsyncIterator[str]:
    """Yield the URL of a server in another process."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(sys.executable, __file__, "--server", stdin=pipe, stdout=pipe)
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield (await process.stdout.readline()).decode().strip()
    finally:
        process.stdin.close()
        await process.wait()


def processor_ms(bridge: int) -> float:
    """Return the processor time of this process and of the bridge's."""
    fields = Path(f"/proc/{bridge}/stat").read_text().rpartition(")")[2].split()
    return (time.process_time() + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")) * 1000


async def timed(samples: list[float], call: Callable[[], Awaitable[Any]], bridge: int) -> float:
    """Add the milliseconds of each call of a block, and return their processor time."""
    used = processor_ms(bridge)
    for _ in range(BLOCK):
        begun = time.perf_counter()
        await call()
        samples.append((time.perf_counter() - begun) * 1000)
    return processor_ms(bridge) - used


async def main(calls: int) -> None:
    """Print every figure."""
    with tempfile.TemporaryDirectory() as name:
        async with (
            OfflineModel() as model,
            server_process() as url,
            bridge_process(
                Path(name) / "data",
                program=("benchmarks.bench_connections", "--bridge"),
                ANTHROPIC_BASE_URL=model.url,
                ANTHROPIC_API_KEY="key-0123456789ab",
            ) as bridge,
        ):
            await bridge.run("connections", "add", "loop", url, "--daily", str(2 * calls))
            async with bridge.page(await bridge.login()) as page:
                await page.mission("hello there")
                tools = ConnectionTools(variables_of_sprite(bridge.process.pid)["SPRITE_CONNECTIONS"], binds=True)
                use = next(each for each in await tools.tools() if each.name == "use_tool")
                asked = {"connection": "loop", "tool": "echo", "arguments": WORDS}
                direct, ours, busy = list[float](), list[float](), 0.0
                async with Client(url, cache=None) as client:
                    await client.list_tools()
                    assert not (await use.handler(asked))["is_error"]
                    while len(ours) < calls:
                        busy -= await timed(direct, lambda: client.call_tool("echo", WORDS), bridge.process.pid)
                        busy += await timed(ours, lambda: use.handler(asked), bridge.process.pid)
        size = len(json.dumps(model.requests[0].body).encode())
    ratio(f"{calls:,} calls through sprite and bridge / direct", ours, direct, 3.0)
    overhead = [mine - theirs for mine, theirs in zip(sorted(ours), sorted(direct), strict=True)]
    below("what sprite and bridge add to a call", overhead, 3.0)
    line("processor time that it takes", f"{busy / calls:.2f} ms a call", "< 3 ms", ok=busy / calls < 3.0)
    line(f"first request with {TOOLS} tools connected", f"{size:,} bytes", "< 33,000 bytes", ok=size < 33_000)


if __name__ == "__main__":
    if "--server" in sys.argv:
        asyncio.run(serve())
    elif "--bridge" in sys.argv:
        assert Connections.__init__.__kwdefaults__ is not None
        Connections.__init__.__kwdefaults__["per_minute"] = 1_000_000
        sys.exit(bridge_command(sys.argv[2:]))
    else:
        asyncio.run(main(int(sys.argv[1]) if sys.argv[1:] else 10_000))
