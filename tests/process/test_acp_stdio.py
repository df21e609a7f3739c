"""The editor's transport: invalid lines are skipped, and an editor that never reads blocks nobody."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import pytest

from bridge.errors import OperatorError
from tests.bridge_harness import bridge_environment, running_bridge
from tests.forking import fork_module
from tests.harness import PATIENCE

# Every worker imports this file, and ACP takes a second.
if TYPE_CHECKING:
    from bridge.acp.program import StdioTransport


@asynccontextmanager
async def pipes() -> AsyncIterator[tuple[StdioTransport, BinaryIO, BinaryIO]]:
    """Open a transport; yield it with its input and its output."""
    from bridge.acp.program import opened

    read, write = os.pipe()
    back_read, back_write = os.pipe()
    with os.fdopen(write, "wb", buffering=0) as to, os.fdopen(back_read, "rb", buffering=0) as back:
        transport = await opened(os.fdopen(read, "rb"), os.fdopen(back_write, "wb"))
        try:
            yield transport, to, back
        finally:
            await transport.close()


@pytest.mark.parametrize("line", [b"not json", b"[" * 20_000, b'{"id":' + b"9" * 10_000 + b"}", b"\xff\xfe\x00", b"3"])
async def test_invalid_line_is_skipped(line: bytes) -> None:
    async with pipes() as (transport, to, _):
        with to:
            to.write(b"\n  \n" + line + b'\n{"id": 7, "method": "initialize"}\n{"half')
        async with asyncio.timeout(PATIENCE):
            assert await transport.receive() == {"id": 7, "method": "initialize"}
            assert await transport.receive() is None


async def test_oversized_line_ends_connection() -> None:
    from bridge.acp.program import MAX_LINE_BYTES

    async with pipes() as (transport, to, _):
        writing = asyncio.create_task(asyncio.to_thread(to.write, b"a" * (MAX_LINE_BYTES + 2**20)))
        with pytest.raises(ConnectionError, match="more than 32 MiB"):
            await transport.receive()
        await transport.close()
        await asyncio.wait([writing])
        writing.exception()


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


async def test_non_pipe_input_raises_error(tmp_path: Path) -> None:
    from bridge.acp.program import opened

    (tmp_path / "file").write_text("")
    with (tmp_path / "file").open("rb") as file, pytest.raises(OperatorError, match=r"docs/editors\.md"):
        await opened(file, None)
    with (
        os.fdopen(os.open(os.devnull, os.O_RDONLY), "rb") as nothing,
        pytest.raises(OperatorError, match=r"docs/editors\.md"),
    ):
        await opened(nothing, None)


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
