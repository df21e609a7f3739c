"""The editor's transport: invalid lines are rejected and skipped, and an editor that never reads blocks nobody."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pytest

from bridge.acp.program import MAX_LINE_BYTES, StdioTransport, opened
from bridge.errors import OperatorError
from tests.bridge_harness import bridge_environment, running_bridge
from tests.forking import fork_module
from tests.harness import PATIENCE


@asynccontextmanager
async def pipes() -> AsyncIterator[tuple[StdioTransport, BinaryIO, BinaryIO]]:
    """Open a transport; yield it with its input and its output."""
    read, write = os.pipe()
    back_read, back_write = os.pipe()
    with os.fdopen(write, "wb", buffering=0) as to, os.fdopen(back_read, "rb", buffering=0) as back:
        transport = await opened(os.fdopen(read, "rb"), os.fdopen(back_write, "wb"))
        try:
            yield transport, to, back
        finally:
            await transport.close()


async def answers(lines: bytes) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Return the messages that a transport accepts from `lines`, and its answers to the other lines."""
    async with pipes() as (transport, to, back):

        def write() -> None:
            with to:
                to.write(lines)

        writing = asyncio.create_task(asyncio.to_thread(write))
        taken = []
        async with asyncio.timeout(PATIENCE):
            while (message := await transport.receive()) is not None:
                taken.append(message)
        await writing
        await transport.close()
        return taken, [json.loads(line) for line in back.read().splitlines()]


@pytest.mark.parametrize(
    ("line", "code"),
    [
        (b"not json", -32700),
        (b"[" * 100_000, -32700),
        (b'{"id":' + b"9" * 10_000 + b"}", -32700),
        (b"\xff\xfe\x00", -32700),
        (b"[1, 2]", -32600),
        (b"3", -32600),
        (b'{"id": [1], "result": {}}', -32600),
        (b'{"id": 1, "method": {"a": 1}}', -32600),
    ],
)
async def test_invalid_line_is_answered_and_skipped(line: bytes, code: int) -> None:
    taken, answered = await answers(b"\n  \n" + line + b'\n{"id": 7, "method": "initialize"}\n{"half')
    assert taken == [{"id": 7, "method": "initialize"}]
    assert [(answer["id"], answer["error"]["code"]) for answer in answered] == [(None, code)]


async def test_oversized_line_is_skipped_and_request_refused() -> None:
    long = b'{"jsonrpc":"2.0","id":5,"method":"session/prompt","params":{"x":"' + b"a" * 100 * 2**20 + b'"}}\n'
    taken, answered = await answers(long + b'{"id": 6, "method": "x"}\n' + b"b" * (MAX_LINE_BYTES + 2**20))
    assert [message["id"] for message in taken] == [6]
    assert [answer["id"] for answer in answered] == [5, None]
    assert "32 MiB at most" in answered[0]["error"]["message"]


async def test_lone_surrogates_and_exceptions_are_serialized() -> None:
    async with pipes() as (transport, _, back):
        await transport.send({"a": "\ud800", "b": ValueError("no")})
        assert json.loads(back.readline()) == {"a": "\ud800", "b": "no"}


async def test_editor_that_never_reads_allows_close() -> None:
    """Senders wait until the transport is closed."""
    async with pipes() as (transport, _, _back):
        sending = [asyncio.create_task(transport.send({"a": "x" * 2**21})) for _ in range(3)]
        for _ in range(10):
            await asyncio.sleep(0)
        assert not any(task.done() for task in sending)
        async with asyncio.timeout(PATIENCE):
            await transport.close()
            assert all(
                isinstance(end, ConnectionError | None)
                for end in await asyncio.gather(*sending, return_exceptions=True)
            )


@pytest.mark.parametrize("name", ["file", "/dev/null"])
async def test_non_pipe_input_raises_error(tmp_path: Path, name: str, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    with (tmp_path / name).open("rb") as file, pytest.raises(OperatorError, match=r"docs/editors\.md"):
        await opened(file, None)
    await asyncio.sleep(0)
    assert caplog.records == []


async def test_program_ends_when_unread_editor_leaves(tmp_path: Path) -> None:
    """The editor never reads its input, and the bridge keeps serving other clients."""
    never_read, target = os.pipe()
    async with running_bridge(tmp_path / "data") as bridge:
        editor = await fork_module(
            "bridge",
            "acp",
            "--data",
            str(bridge.data),
            env=bridge_environment(),
            stdin=asyncio.subprocess.PIPE,
            stdout=target,
        )
        os.close(target)
        assert editor.stdin is not None
        asked = [request(0, "initialize", protocolVersion=1)]
        # The answers exceed the capacity of the pipe and its writer.
        asked += [request(n, "nonsense" * 200) for n in range(1, 2_000)]
        asked += [request(n, "session/load", sessionId="sprite-conversation", cwd="/", mcpServers=[]) for n in range(9)]
        try:
            editor.stdin.write(b"".join(asked))
            await editor.stdin.drain()
            async with bridge.page(await bridge.login()) as page:
                await page.link("ready")
                assert (await page.ask("system", {"action": "status"}))["type"] == "status"
            editor.stdin.close()
            async with asyncio.timeout(PATIENCE):
                assert await editor.wait() == 0
        finally:
            editor.stdin.close()
            editor.kill()
    os.close(never_read)


def request(number: int, method: str, **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}).encode() + b"\n"
