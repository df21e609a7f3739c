"""`python -m sprite mcp`: a real MCP client against the real process."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from tests.forking import ForkedProcess, fork_module
from tests.harness import PATIENCE, ROOT, sprite_environment
from tests.memory_stores import call, open_stores

# Importing the package takes 0.8 s, so the tests import it locally.
if TYPE_CHECKING:
    from mcp import ClientSession
    from mcp.client._transport import TransportStreams


async def process(workspace: Path) -> ForkedProcess:
    return await fork_module(
        "sprite",
        "mcp",
        "--workspace",
        str(workspace),
        env=sprite_environment(None),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )


@asynccontextmanager
async def transport(server: ForkedProcess) -> AsyncIterator[TransportStreams]:
    """Yield the streams of messages over a process's stdin and stdout."""
    from mcp.shared.message import SessionMessage
    from mcp.types import jsonrpc_message_adapter

    heard, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, said = anyio.create_memory_object_stream[SessionMessage](0)

    async def listen() -> None:
        assert server.stdout is not None
        async with heard:
            async for line in server.stdout:
                await heard.send(SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False)))

    async def speak() -> None:
        assert server.stdin is not None
        async with said:
            async for message in said:
                server.stdin.write(message.message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")

    async with anyio.create_task_group() as tasks, read, write:
        tasks.start_soon(listen)
        tasks.start_soon(speak)
        yield read, write
        tasks.cancel_scope.cancel()


@asynccontextmanager
async def connected(workspace: Path) -> AsyncIterator[ClientSession]:
    """Start the process and yield an initialized client."""
    from mcp import ClientSession

    server = await process(workspace)
    async with transport(server) as (read, write), ClientSession(read, write) as client:
        async with asyncio.timeout(PATIENCE):
            await client.initialize()
        yield client
    server.terminate()
    await server.wait()


async def ask(client: ClientSession, tool: str = "search_memory", **question: Any) -> tuple[bool, str]:
    """Call a tool; return (is_error, text of the answer)."""
    from mcp.types import CallToolResult, TextContent

    async with asyncio.timeout(PATIENCE):
        result = await client.call_tool(tool, question)
    assert isinstance(result, CallToolResult)
    content, *_ = result.content
    assert isinstance(content, TextContent)
    assert result.is_error or result.structured_content is not None
    return bool(result.is_error), content.text


@pytest.fixture
async def remembering(workspace: Path) -> Path:
    """Return a workspace with turns and a learning."""
    folder = workspace / ".os/memory"
    folder.mkdir(parents=True)
    async with open_stores(folder) as stores:
        await stores.learn('PREFERENCE [t]: Ada prefers tea | "I prefer tea"', "I prefer tea")
        await stores.turn("Where is the harbour?", "In the north.", calls=[call("Bash", "harbour.txt")])
        for number in range(30):
            await stores.turn(f"Ship number {number}", "Noted.")
    return workspace


async def test_mcp_offers_read_only_tools(remembering: Path) -> None:
    async with connected(remembering) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert list(tools) == ["search_memory", "around", "read_memory", "list_actions"]
        for tool in tools.values():
            assert tool.annotations is not None
            assert tool.annotations.read_only_hint is True
            assert tool.annotations.destructive_hint is False
            assert tool.output_schema is not None
            assert tool.output_schema["type"] == "object"
        asked = tools["search_memory"].input_schema
        assert set(asked["properties"]) == {"query", "limit", "project"}
        assert asked["required"] == ["query"]
        failed, text = await ask(client, query="what does Ada prefer to drink, tea?")
        assert not failed
        assert "L1 PREFERENCE" in text
        assert "Ada prefers tea" in text
        assert text.endswith("Learnings exist up to turn 1; 31 newer turn(s) are not curated yet.")
        _, text = await ask(client, query="harbour", limit=1)
        assert text.startswith("- [turn 2, ")
        assert "In the north." in text
        for limit, least, most in ((-5, 1, 1), (1, 1, 1), (1000, 11, 100)):
            failed, text = await ask(client, query="ship number", limit=limit)
            assert not failed
            assert least <= len([line for line in text.splitlines() if line.startswith("- ")]) <= most


async def test_mcp_reads_memory_without_running_sprite(remembering: Path) -> None:
    async with connected(remembering) as client:
        failed, text = await ask(client, "around", turn=2, before=1, after=1)
        assert not failed, text
        assert [line.split(",")[0] for line in text.splitlines() if line.startswith("[")] == [
            "[turn 1",
            "[turn 2",
            "[turn 3",
        ]
        assert "User: Where is the harbour?\nAgent: In the north.\nTools: Bash" in text
        failed, text = await ask(client, "read_memory")
        assert not failed, text
        assert "--- user.md, " in text
        assert (await ask(client, "list_actions")) == (False, "Nothing is open.")
        assert (await ask(client, "around", turn=999)) == (True, "There is no turn 999.")
        assert (await ask(client, "read_memory", file="passwd"))[0] is True
        for tool, asked in (("read_memory", {"file": "user.md"}), ("search_memory", {"query": "tea"})):
            for project in ("../..", "..", "a/b", "", "/x\n", "/" + "x" * 1_000):
                failed, text = await ask(client, tool, **asked, project=project)
                assert failed, project
                assert text.startswith("The project is no key: "), text
        failed, text = await ask(client, query="tea", project="web")
        assert not failed
        assert "There is no project 'web' in memory" in text
        for tool, argument in (("add_action", "content"), ("ask_sprite", "text")):
            failed, text = await ask(client, tool, **{argument: "Paint"})
            assert failed
            assert "only reads" in text


ODD = ["", '" AND (NEAR* OR col:x', "NULL\0byte", "帮我找茶", "\N{HOT BEVERAGE}", "tea " * 5000, "around:99999"]


async def test_mcp_survives_odd_queries_and_invalid_calls(remembering: Path) -> None:
    async with connected(remembering) as client:
        for query in ODD:
            failed, text = await ask(client, query=query)
            assert not failed, (query, text)
            assert "Learnings exist up to turn 1" in text, query
        # An invalid call returns an error, and the next call works.
        assert (await ask(client))[0] is True
        assert (await ask(client, query="tea", limit="many"))[0] is True
        assert (await ask(client, query="tea"))[0] is False


async def test_mcp_sees_replaced_or_deleted_memory(remembering: Path) -> None:
    memory = remembering / ".os/memory"
    memory.with_name("other").mkdir()
    async with connected(remembering) as client:
        assert "L1 " in (await ask(client, query="tea"))[1]
        async with open_stores(memory.with_name("other")) as stores:
            await stores.learn("FACT [t]: the tea is green", "my tea is green")
        for name in ("memory.db", "transcript.db"):
            (memory.with_name("other") / name).replace(memory / name)
        assert "the tea is green" in (await ask(client, query="tea"))[1]
        (memory / "memory.db").unlink()
        failed, text = await ask(client, query="tea")
        assert failed
        assert "no sprite has run there yet" in text


async def test_mcp_without_memory_says_so(workspace: Path) -> None:
    """The process creates no files, and finds the first turn once it is logged."""
    async with connected(workspace) as client:
        asked: dict[str, Any]
        for tool, asked in (("search_memory", {"query": "tea"}), ("list_actions", {}), ("around", {"turn": 1})):
            failed, text = await ask(client, tool, **asked)
            assert failed
            assert text.startswith("Nothing is remembered here yet")
        assert not (workspace / ".os").exists()
        (workspace / ".os/memory").mkdir(parents=True)
        async with open_stores(workspace / ".os/memory") as stores:
            await stores.turn("I like tea", "Noted.")
        assert "I like tea" in (await ask(client, query="tea"))[1]


@pytest.mark.soak
async def test_mcp_started_by_stdio_client_answers(remembering: Path) -> None:
    """The client starts a separate process. `test_mcp_door.py` covers Claude Code as such a client."""
    from mcp import ClientSession
    from mcp.client.stdio import StdioServerParameters, stdio_client

    command = ["-m", "sprite", "mcp", "--workspace", str(remembering)]
    server = StdioServerParameters(command=sys.executable, args=command, cwd=ROOT, env=sprite_environment(None))
    async with stdio_client(server) as (read, write), ClientSession(read, write) as client:
        async with asyncio.timeout(PATIENCE):
            await client.initialize()
        assert "L1 PREFERENCE" in (await ask(client, query="what does Ada prefer to drink, tea?"))[1]


async def test_mcp_closed_stdin_ends_process_cleanly(remembering: Path) -> None:
    """Stdout carries only protocol messages, also after an invalid line."""
    requests = [
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "initialize",
            "params": {
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "test", "version": "1"},
            },
        },
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
    ]
    started = await process(remembering)
    assert started.stdin is not None
    assert started.stdout is not None
    for request in requests:
        started.stdin.write(json.dumps(request).encode() + b"\n")
    async with asyncio.timeout(PATIENCE):
        first = await started.stdout.readline()
        started.stdin.write(b"this is no JSON\n")
        started.stdin.close()
        out, said = await started.communicate()
    assert started.returncode == 0
    assert b"Traceback" not in said
    for line in (first + out).splitlines():
        assert json.loads(line)["jsonrpc"] == "2.0"
    assert json.loads(first)["result"]["serverInfo"]["name"] == "sprite-memory"


async def test_mcp_sigterm_ends_process(remembering: Path) -> None:
    started = await process(remembering)
    assert started.stdin is not None
    assert started.stdout is not None
    started.stdin.write(b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}\n')
    async with asyncio.timeout(PATIENCE):
        assert await started.stdout.readline()
        started.send_signal(signal.SIGTERM)
        await started.wait()
    started.stdin.close()
