"""The longest stall of an event loop under the worst inputs that we can find, for a sprite and for a bridge.

Each input is sent three times; the smallest of the three longest stalls counts, and time in which other programs had
the processor does not. Each is compared with an ordinary message of the same run. Then come the stall with that time,
and the processor time of the longest callback.
"""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import sqlite3
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.report import line
from benchmarks.stall_meter import Stall, StallMeter
from bridge.admin.control import control_session
from tests.bridge_harness import Bridge, running_bridge
from tests.harness import SpriteServer, running_sprite
from tests.in_thread import route_environment, route_logs
from tests.scripted_model import OfflineModel, Script

WANTED_MS = 50.0
TIMES = 3
PEOPLE = 2000
#: Just under the limit of a frame.
FRAME = 1_000_000
BAITS = (
    *("password: ", "private key ", "secret ", "a,password\n", "<private>", "-----END PRIVATE KEY-----", "é"),
    # It asks not to be remembered, perhaps, and each mark may begin a quotation.
    "remember „„„„„„„„„„„„„„„„„„„„„„„„„„„„„„„„„„„„„„„„",
)
Send = Callable[[], Awaitable[object]]


def table(columns: int, rows: int) -> dict[str, Any]:
    """A table whose rows leave out every cell."""
    return {"type": "table", "data": {"columns": [""] * columns, "rows": [{}] * rows}}


def frames() -> dict[str, tuple[str, dict[str, Any]]]:
    """Messages for a sprite, by what is bad about them."""

    def card(*blocks: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        return "canvas_interaction", {"action": "create_card", "title": "t", "blocks": list(blocks)}

    def note(text: str) -> dict[str, Any]:
        return {"type": "note", "data": {"content": text}}

    found = {
        "a card with 100,000 columns and rows": card(table(100_000, 100_000)),
        "a card of 200 tables": card(*[table(200, 100)] * 200),
        "a card of 20,000 blocks": card(*[note("")] * 20_000),
        "a card of 450 kB of passwords": card(note("password: " * 45_000)),
        "a memory edit of 900 kB": ("memory", {"op": "edit", "name": "user.md", "content": "- password: x\n" * 64_000}),
        "a search for 900 kB": ("memory", {"op": "search", "query": "secret " * 128_000}),
        "a forget of 900 kB": ("memory", {"op": "forget", "text": "secret " * 128_000, "preview": True}),
        "an action of 900 kB": ("memory", {"op": "add_action", "content": "password: " * 90_000}),
        "a stack named with 900 kB": ("canvas_interaction", {"action": "create_stack", "name": "password: " * 90_000}),
    }
    for bait in BAITS:
        found[f"a message of 95 kB of {bait!r}"] = ("mission", {"text": (bait * 95_000)[:95_000]})
        # In JSON, a letter beyond ASCII has six bytes.
        results = [{"name": "T", "result": (bait * FRAME)[:140_000]}]
        turn = {"external_id": "1", "session": "a", "at": 1.0, "user": "Go", "tools": results}
        found[f"an imported turn of {bait!r}"] = "observe", {"source": "s", "turns": [turn]}
    return found


def answers() -> dict[str, tuple[str, dict[str, Any]]]:
    """Answers of the model, by what is bad about them: what they answer, and the scripted step."""
    found: dict[str, tuple[str, dict[str, Any]]] = {}
    for bait in BAITS:
        text = (bait * FRAME)[:400_000]
        found[f"an answer of 400 kB of {bait!r}"] = "agent", {"text": text}
        written = {"file_path": "notes.txt", "content": text}
        found[f"a file of 400 kB of {bait!r}"] = "agent", {"tool": "Write", "input": written, "on": "prompt"}
        found[f"400 kB of {bait!r} of the curator"] = "curator", {"raw_text": text}
    return found


async def sprite_stalls(meter: StallMeter, folder: Path) -> None:
    """Send each message to a sprite, garbage, and bad answers of its model."""
    async with OfflineModel() as model, running_sprite(folder / "workspace", model.url) as sprite:
        ordinary = await worst(meter, "sprite", partial(said, sprite, "mission", {"text": "Hello"}))
        for name, (whose, step) in answers().items():
            await said(sprite, "system", {"action": "new_session"})
            await measured(meter, "sprite", name, partial(answered, sprite, model, whose, step), ordinary)
        # The model refuses at once: its answer is not what is measured.
        model.script = Script().agent({"error": 400, "times": -1}, audience="any")
        for name, (kind, payload) in frames().items():
            await measured(meter, "sprite", name, partial(said, sprite, kind, payload), ordinary)
        deep = b'{"type":"memory","payload":' + b"[" * FRAME + b"\n"
        await measured(meter, "sprite", "a frame nested 1,000,000 deep", partial(raw, sprite, deep), ordinary)
        many = b'{"type":"mission","id":7,"payload":[' + b"{}," * (FRAME // 3) + b"{}]}\n"
        await measured(meter, "sprite", "a frame of 300,000 members", partial(raw, sprite, many), ordinary)


async def answered(sprite: SpriteServer, model: OfflineModel, whose: str, step: dict[str, Any]) -> None:
    """One message with this answer of the agent's model, or of the curator's."""
    model.script = Script(curator=[step]) if whose == "curator" else Script(agent=[step])
    await said(sprite, "mission", {"text": "My name is Ada."})
    if whose == "curator":
        await said(sprite, "system", {"action": "flush"})


async def said(sprite: SpriteServer, kind: str, payload: dict[str, Any]) -> None:
    """One message, and its answer."""
    async with sprite.client() as client:
        id_ = client.send(kind, payload)
        if (await client.reply(id_))["type"] == "ack" and kind == "mission":
            await client.end_of(id_)


async def raw(sprite: SpriteServer, frame: bytes) -> None:
    """One frame as it is; whatever the answer is."""
    async with sprite.client() as client:
        client.writer.write(frame)
        await client.writer.drain()
        async with asyncio.timeout(30):
            await client.until(lambda m: m["type"] == "error")


async def bridge_stalls(meter: StallMeter, folder: Path) -> None:
    """Ask a bridge with many people how all are, and send bodies to its doors."""
    data = folder / "data"
    async with running_bridge(data):
        pass
    with sqlite3.connect(data / "bridge.db") as database:
        names = [(f"p{number}", time.time()) for number in range(PEOPLE)]
        database.executemany("INSERT INTO people (name, created_at) VALUES (?, ?)", names)
    database.close()
    async with running_bridge(data) as bridge:
        rpc = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":'
        # As `bridge serve` does.
        gc.freeze()
        scopes = ("observe", "ask", "actions", "memory:read")
        arguments = [word for scope in scopes for word in ("--scope", scope)]
        code, out, err = await bridge.run("users", "token", "p0", *arguments)
        assert code == 0, err
        token = out.split()[-1]
        link = (await bridge.run("users", "link", "p0"))[1].strip()
        cookie = await bridge.login(link)
        ordinary = await worst(meter, "bridge", partial(posted, bridge, token, "/mcp", rpc + b"{}}"))
        await measured(meter, "bridge", f"status of {PEOPLE:,} people", partial(status, bridge), ordinary)
        turns = [{"external_id": str(n), "session": "a", "at": 1.0, "user": "x" * 15_000} for n in range(500)]
        bodies = {
            ("/mcp", "an MCP body nested 400,000 deep"): rpc + b"[" * 400_000 + b"]" * 400_000 + b"}",
            ("/mcp", "an MCP body of 600,000 members"): rpc + b"[" + b"[]," * 600_000 + b"[]]}",
            ("/v1/observations", "8 MB of turns"): json.dumps({"source": "s", "turns": turns}).encode(),
            ("/v1/observations", "8 MB of empty turns"): b'{"source":"s","turns":[' + b"{}," * 2_600_000 + b"{}]}",
            ("/v1/chat/completions", "a chat of 1,000,000 members"): b'{"messages":[' + b"{}," * 1_000_000 + b"{}]}",
            ("/login", "a login form of 900 kB"): b"token=" + b"a" * 900_000,
        }
        for (path, name), body in bodies.items():
            await measured(meter, "bridge", name, partial(posted, bridge, token, path, body), ordinary)
        frame = json.dumps({"type": "mission", "id": 7, "payload": [{}] * 300_000})
        await measured(
            meter, "bridge", "a WebSocket message of 300,000 members", partial(sent, bridge, cookie, frame), ordinary
        )


async def status(bridge: Bridge) -> None:
    """Ask for the contents of `bridge status`."""
    async with control_session(bridge.data / "run") as session, session.get("/status") as response:
        assert response.status == 200
        await response.read()


async def posted(bridge: Bridge, token: str, path: str, body: bytes) -> None:
    """One request; whatever the answer is."""
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json", "Accept": "*/*"}
    async with bridge.http() as session:
        try:
            async with asyncio.timeout(60), session.post(path, data=body, headers=headers) as response:
                await response.read()
        except (aiohttp.ClientError, TimeoutError):
            # Refused before its end.
            return


async def sent(bridge: Bridge, cookie: str, frame: str) -> None:
    """One WebSocket message, and whatever is answered."""
    async with bridge.page(cookie) as page:
        await page.websocket.send_str(frame)
        await page.until(lambda m: m["type"] == "error")


async def worst(meter: StallMeter, thread: str, send: Send) -> Stall:
    """Return the longest stall while an input is sent: the smallest of some tries."""
    found = []
    for _ in range(TIMES):
        await asyncio.sleep(0.3)
        meter.reset()
        await send()
        await asyncio.sleep(0.1)
        found.append(meter.longest(thread))
    return min(found)


async def measured(meter: StallMeter, thread: str, name: str, send: Send, ordinary: Stall) -> None:
    """Print the longest stall while an input is sent, beside that of an ordinary message."""
    stall = await worst(meter, thread, send)
    value = (
        f"{stall.ms:.0f} ms, {stall.ms / ordinary.ms:.1f} x ({stall.wall_ms:.0f} ms; {stall.callback[:20]}: "
        f"{stall.cpu_ms:.0f} ms)"
    )
    line(f"{thread}: {name}"[:58], value, f"<= {WANTED_MS:.0f} ms", ok=stall.ms <= WANTED_MS)


async def main() -> None:
    """Measure both programs."""
    route_environment()
    route_logs()
    logging.disable(logging.CRITICAL)
    meter = StallMeter()
    meter.install()
    with tempfile.TemporaryDirectory() as folder:
        if "bridge" not in sys.argv:
            await sprite_stalls(meter, Path(folder))
        if "sprite" not in sys.argv:
            await bridge_stalls(meter, Path(folder))


if __name__ == "__main__":
    asyncio.run(main())
