"""`/mcp` at the bridge: the official MCP client over HTTP against a real bridge with a real agent."""

from __future__ import annotations

import asyncio
import io
import json
import re
import shlex
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.bridge_harness import Bridge, running_bridge
from tests.claude_code import ClaudeCode, tool_results
from tests.forking import forking_python
from tests.harness import PATIENCE, ROOT, observations
from tests.in_thread import call_main
from tests.inspection import eventually
from tests.mcp_client import called, mcp_client, person_token
from tests.scripted_model import OfflineModel

pytestmark = pytest.mark.asyncio(loop_scope="module")

READING = ["search_memory", "around", "read_memory", "list_actions"]
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
}


@dataclass
class Rooms:
    """A bridge with some turns of its agent, and a token with every scope."""

    bridge: Bridge
    token: str


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="rooms")
async def rooms_(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Rooms]:
    data = tmp_path_factory.mktemp("mcp") / "data"
    async with running_bridge(data) as bridge:
        async with bridge.page(await bridge.login()) as page:
            await page.link("ready")
            for text in ("My harbour is in Kiel.", "My ship is called Ada.", "make a table card of apples 3, pears 5"):
                assert (await page.mission(text))["event"] == "complete"
        token = await person_token(bridge, "memory:read", "ask", "actions")
        yield Rooms(bridge, token)


def has_more(rooms: Rooms, than: int) -> bool:
    """Tell whether the log has more than `than` turns."""
    return len(observations(rooms.bridge.workspace)) > than


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_tools_answer_in_every_protocol_revision(rooms: Rooms, mode: str) -> None:
    async with mcp_client(rooms.bridge, rooms.token, mode=mode) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert list(tools) == [*READING, "ask_sprite", "add_action"]
        assert {name for name, tool in tools.items() if tool.annotations and tool.annotations.read_only_hint} == set(
            READING
        )
        refused, text, given = await called(client, "search_memory", query="harbour", limit=3)
        assert not refused, text
        assert "My harbour is in Kiel." in text
        turn = next(hit["id"] for hit in given["hits"] if hit["kind"] == "turn")
        refused, text, given = await called(client, "around", turn=turn, before=0, after=1)
        assert not refused, text
        assert [each["id"] for each in given["turns"]] == [turn, turn + 1]
        # Claude Code shows its model only the structured content, so times must be readable.
        assert re.fullmatch(r"20\d\d-\d\d-\d\d \d\d:\d\d UTC", given["turns"][0]["when"])
        assert "User: My ship is called Ada." in text
        refused, text, given = await called(client, "read_memory", file="user.md", as_of="2020-01-01T00:00")
        assert not refused, text
        assert [(file["name"], file["version"]) for file in given["files"]] == [("user.md", 0)]
        _, _, given = await called(client, "read_memory")
        assert [file["name"] for file in given["files"]] == ["tools.md", "user.md", "files.md", "context.md"]
        refused, text, given = await called(client, "add_action", content="Paint the ship", due="2031-05-01", tz="UTC")
        assert not refused, text
        assert given["action"]["due"] == 1_935_392_400.0
        assert given["action"]["when"] == "2031-05-01 09:00 UTC"
        _, text, given = await called(client, "list_actions")
        assert "due 2031-05-01 09:00 UTC] Paint the ship" in text
        assert given["actions"][0]["content"] == "Paint the ship"


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_mission_reports_progress_and_reply(rooms: Rooms, mode: str) -> None:
    steps: list[str] = []

    async def note(_progress: float, _total: float | None, message: str | None) -> None:
        steps.append(message or "")

    async with mcp_client(rooms.bridge, rooms.token, mode=mode) as client:
        text = "make a table card of ropes 7, sails 2"
        refused, text, given = await called(client, "ask_sprite", progress=note, text=text)
        assert not refused, text
        assert given["outcome"] == "complete"
        assert text == given["reply"]
        assert steps[0] == "The agent has started."
        assert any("create_card" in step for step in steps)


async def test_cancelled_call_interrupts_mission(rooms: Rooms) -> None:
    before = len(observations(rooms.bridge.workspace))
    began = asyncio.Event()

    async def note(_progress: float, _total: float | None, message: str | None) -> None:
        if "tail" in (message or ""):
            began.set()

    async with mcp_client(rooms.bridge, rooms.token, mode="auto") as client:
        asking = asyncio.create_task(called(client, "ask_sprite", progress=note, text="run `tail -f /dev/null`"))
        async with asyncio.timeout(PATIENCE):
            await began.wait()
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        await eventually(partial(has_more, rooms, before), "the turn does not end")
    assert observations(rooms.bridge.workspace)[-1]["outcome"] == "interrupted"


async def test_revoked_token_ends_stream_and_mission(rooms: Rooms) -> None:
    for mode in ("auto", "legacy"):
        before = len(observations(rooms.bridge.workspace))
        token = await person_token(rooms.bridge, "ask", name=f"short {mode}")
        began = asyncio.Event()

        async def note(
            _progress: float, _total: float | None, message: str | None, began: asyncio.Event = began
        ) -> None:
            if "tail" in (message or ""):
                began.set()

        async def ask(token: str = token, mode: str = mode, note: Any = note) -> None:
            async with mcp_client(rooms.bridge, token, mode=mode) as client:
                await called(client, "ask_sprite", progress=note, text="run `tail -f /dev/null`")

        asking = asyncio.create_task(ask())
        async with asyncio.timeout(PATIENCE):
            await began.wait()
            assert (await rooms.bridge.run("users", "revoke-token", "local", f"short {mode}"))[0] == 0
            (ended,) = await asyncio.gather(asking, return_exceptions=True)
        assert isinstance(ended, BaseException), "the call succeeded with a revoked token"
        await eventually(partial(has_more, rooms, before), "the turn does not end")
        assert observations(rooms.bridge.workspace)[-1]["outcome"] == "interrupted", mode


HOSTILE: list[tuple[str, dict[str, Any], str]] = [
    ("search_memory", {}, "missing required field `query`"),
    ("search_memory", {"query": 5}, "Expected `str`"),
    ("search_memory", {"query": "x" * 20_001}, "length <= 20000"),
    ("search_memory", {"query": "tea", "limt": 5}, "unknown field `limt`"),
    ("search_memory", {"query": "tea", "limit": "many"}, "Expected `int`"),
    ("search_memory", {"query": "tea", "project": "../.."}, "The project is no key"),
    ("read_memory", {"file": "context.md", "project": "../.."}, "The project is no key"),
    ("read_memory", {"file": "context.md", "project": "/a\nb"}, "The project is no key"),
    ("read_memory", {"file": "context.md", "project": "/" + "a" * 2_000}, "The project is no key"),
    ("around", {"turn": -1}, "There is no turn -1."),
    ("around", {"turn": 10**30}, "There is no turn 1000"),
    ("around", {"turn": 9_999}, "no turn 9999"),
    ("read_memory", {"file": "../../etc/passwd"}, "There is no memory file"),
    ("read_memory", {"file": "user.md", "as_of": "yesterday-ish"}, "is not a valid time"),
    ("read_memory", {"file": "user.md", "as_of": 1e300}, "is not a valid time"),
    ("read_memory", {"file": "user.md", "as_of": "nan"}, "is not a valid time"),
    ("ask_sprite", {"text": " "}, "There is nothing to do"),
    ("ask_sprite", {"text": "x" * 200_001}, "length <= 200000"),
    ("add_action", {"content": "Sail", "due": "some day"}, "some day"),
    ("add_action", {"content": "Sail", "rrule": "FREQ=SECONDLY"}, ""),
    ("add_action", {"content": "Sail", "tz": "Nowhere/Land", "due": "2031-05-01"}, "Nowhere/Land"),
    ("add_action", {"content": "Sail", "priority": 10**9}, "Expected `int` <= 1000"),
]


async def test_invalid_arguments_return_tool_errors(rooms: Rooms) -> None:
    """The error names the wrong argument, and later calls work."""
    async with mcp_client(rooms.bridge, rooms.token) as client:
        for tool, arguments, words in HOSTILE:
            refused, text, given = await called(client, tool, **arguments)
            assert refused, (tool, arguments, text)
            assert words in text, (tool, arguments)
            assert given is None
        odd: list[dict[str, Any]] = [
            {"limit": 10**30},
            {"limit": -5},
            {"query": "\0 tea"},
            {"query": '" AND (NEAR* OR x:'},
        ]
        for arguments in odd:
            refused, text, _ = await called(client, "search_memory", **{"query": "tea", **arguments})
            assert not refused, (arguments, text)


async def test_token_offers_only_tools_of_scopes(rooms: Rooms) -> None:
    token = await person_token(rooms.bridge, "memory:read", name="reader")
    async with mcp_client(rooms.bridge, token) as client:
        assert [tool.name for tool in (await client.list_tools()).tools] == READING
        for tool, argument, scope in (("ask_sprite", "text", "ask"), ("add_action", "content", "actions")):
            arguments: dict[str, Any] = {argument: "Sail."}
            refused, text, _ = await called(client, tool, **arguments)
            assert refused
            assert f"it lacks the scope {scope}" in text
    watcher = await person_token(rooms.bridge, "observe", name="watcher")
    async with mcp_client(rooms.bridge, watcher) as client:
        assert (await client.list_tools()).tools == []
        assert (await called(client, "search_memory", query="tea"))[0] is True


async def test_unauthenticated_or_foreign_requests_are_refused(rooms: Rooms) -> None:
    """No token, a wrong token, a foreign origin or host, or an oversized or malformed body."""
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    well = {"Authorization": f"Bearer {rooms.token}", "Accept": "application/json, text/event-stream"}
    metadata = f'resource_metadata="{rooms.bridge.url}/.well-known/oauth-protected-resource/mcp"'
    async with rooms.bridge.http() as session:
        for headers, challenge in (
            ({}, f"Bearer {metadata}"),
            ({"Authorization": "Bearer bridge-person-wrong"}, f'Bearer error="invalid_token", {metadata}'),
            ({"Cookie": await rooms.bridge.login(await fresh_link(rooms.bridge))}, f"Bearer {metadata}"),
        ):
            async with session.post("/mcp", json=ping, headers=headers) as response:
                assert response.status == 401
                assert response.headers["WWW-Authenticate"] == challenge
                assert "token" in (await response.json())["error"]["message"]
        async with session.post("/mcp", json=ping, headers={**well, "Origin": "https://evil.example"}) as response:
            assert response.status == 403
        async with session.post("/mcp", json=ping, headers={**well, "Host": "evil.example"}) as response:
            assert response.status == 421
        async with session.post("/mcp", data=io.BytesIO(b"x" * 3_000_000), headers=well) as response:
            assert response.status == 413
        async with session.get("/mcp", headers=well) as response:
            assert (response.status, response.headers["Allow"]) == (405, "POST")
        for body in (b"[" * 200_000, b'{"jsonrpc": "2.0", "id": 1, "method": "' + b"\xff" + b'"}', b"1" * 10_000, b""):
            headers = {**well, "Content-Type": "application/json"}
            async with session.post("/mcp", data=body, headers=headers) as response:
                assert response.status in {400, 406}, body[:20]


async def fresh_link(bridge: Bridge) -> str:
    """Return a new login link of the local person."""
    return (await bridge.run("users", "link", "local"))[1].split()[-1]


async def test_stalled_client_does_not_delay_others(rooms: Rooms) -> None:
    host, port = rooms.bridge.url.removeprefix("http://").split(":")
    asked = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": META}})
    request = (
        f"POST /mcp HTTP/1.1\r\nHost: {host}:{port}\r\nAuthorization: Bearer {rooms.token}\r\n"
        "Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n"
        f"Mcp-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/list\r\nContent-Length: {len(asked)}\r\n\r\n{asked}"
    ).encode()
    connections = [await asyncio.open_connection(host, int(port), limit=1) for _ in range(3)]
    try:
        for reader, writer in connections:
            reader._transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(request * 2_000)
        async with mcp_client(rooms.bridge, rooms.token) as client:
            assert (await called(client, "search_memory", query="harbour"))[0] is False
    finally:
        for _, writer in connections:
            writer.transport.abort()


def written(kind: str, number: int, rooms: Rooms) -> str:
    """Return a code block of docs/mcp.md, filled with this bridge's address and token."""
    text = re.findall(rf"```{kind}\n(.*?)```", (ROOT / "docs/mcp.md").read_text(), re.DOTALL)[number]
    return str(text).replace("http://127.0.0.1:8080", rooms.bridge.url).replace("TOKEN", rooms.token)


@pytest.mark.soak
async def test_documented_claude_code_setup_finds_turn(rooms: Rooms, tmp_path: Path) -> None:
    async with OfflineModel() as model:
        claude = ClaudeCode(tmp_path / "home", model.url)
        config = tmp_path / "mcp.json"
        # All three servers run at once, so this one needs its own name.
        config.write_text(written("json", 0, rooms).replace('"sprite-memory"', '"sprite-file"'))
        for number in (1, 2):
            line = written("console", number, rooms).replace("~/sprite", str(ROOT))
            line = line.replace("data/workspaces/local", str(rooms.bridge.workspace))
            line = line.replace(".venv/bin/python", forking_python())
            await claude.run(*shlex.split(line.removeprefix("$ claude ")))
        servers = ("sprite-memory", "sprite-here", "sprite-file")
        model.script.agent(
            *({"tool": f"mcp__{server}__search_memory", "input": {"query": "harbour"}} for server in servers),
            {"text": "It is in Kiel."},
        )
        result = await claude.say("Where is my harbour?", tmp_path / "home", "--mcp-config", str(config))
        assert result["result"] == "It is in Kiel."
        shown = [tool_results(asked) for asked in model.requests if asked.kind == "main"][-1].splitlines()
        found = [line for line in shown if "harbour is in Kiel." in line]
        assert len(found) >= len(servers), shown


async def test_documented_python_program_finds_turn(rooms: Rooms) -> None:
    program = compile(written("python", 0, rooms), "docs/mcp.md", "exec", dont_inherit=True)

    def run(_arguments: list[str]) -> int:
        exec(program, {"__name__": "__main__"})  # noqa: S102 - the code comes from this repository
        return 0

    _, printed, _ = await call_main(run, [], {})
    assert "harbour is in Kiel." in printed
