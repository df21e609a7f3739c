"""The ways out of a sandbox without network: the egress proxy and the model, as forwarded sockets."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from sprite.config import Settings
from sprite.sandbox.model_door import listening_socket, model_door
from sprite.sandbox.sandbox import find_boundary, sandboxed

pytestmark = pytest.mark.skipif(os.uname().sysname != "Linux", reason="bubblewrap is Linux's")


async def _run(settings: Settings, script: str) -> str:
    boundary = await asyncio.to_thread(find_boundary, settings)
    assert boundary.engine is not None, boundary.words
    process = await asyncio.create_subprocess_exec(
        *sandboxed(settings, boundary.engine, {}),
        "/bin/sh",
        "-c",
        script,
        cwd=settings.workspace,
        stdout=asyncio.subprocess.PIPE,
    )
    return (await process.communicate())[0].decode()


async def _answers(heard: list[str], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    heard.append((await reader.readuntil(b"\r\n\r\n")).decode())
    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")
    await writer.drain()
    writer.close()


def _settings(folder: Path, base_url: str | None = None) -> Settings:
    # The socket's whole path would be too long for the kernel.
    settings = Settings(folder / ("long" * 25) / "workspace", base_url=base_url)
    for path in (settings.memory, settings.run):
        path.mkdir(parents=True)
    return settings


async def test_egress_proxy_gets_requests_of_programs(tmp_path: Path) -> None:
    settings, heard = _settings(tmp_path), list[str]()
    proxy = listening_socket(settings.egress_socket)
    async with await asyncio.start_unix_server(lambda r, w: _answers(heard, r, w), sock=proxy):
        said = await _run(settings, "curl -sS http://example.org/page; curl -sS https://example.com/ || true")
    assert said == "hello"
    assert [request.split("\r\n")[0] for request in heard] == [
        "GET http://example.org/page HTTP/1.1",
        "CONNECT example.com:443 HTTP/1.1",
    ]


async def test_model_is_reached_at_its_own_address(tmp_path: Path) -> None:
    """Another port of this machine is not reached."""
    heard = list[str]()
    async with (
        await asyncio.start_server(lambda r, w: _answers(heard, r, w), "127.0.0.1", 0) as model,
        await asyncio.start_server(lambda r, w: _answers(heard, r, w), "127.0.0.1", 0) as other,
    ):
        address, closed = (f"127.0.0.1:{server.sockets[0].getsockname()[1]}" for server in (model, other))
        settings = _settings(tmp_path, f"http://{address}")
        async with model_door(settings):
            assert await _run(settings, f"curl -sS http://{address}/v1; curl -s http://{closed}/ || true") == "hello"
    (request,) = heard
    assert f"Host: {address}" in request


async def test_distant_model_gets_local_address(tmp_path: Path) -> None:
    settings = _settings(tmp_path, "http://gateway.example/v1")
    (settings.run / "model.sock").touch()
    assert (await _run(settings, "echo $ANTHROPIC_BASE_URL")).strip() == "http://127.0.0.1:3129/v1"


async def test_system_calls_beside_namespaces_are_refused(tmp_path: Path) -> None:
    """Sockets of a hypervisor, keys of the kernel, io_uring; a program's own sockets work."""
    script = """
import ctypes, os, socket
socket.socket(socket.AF_INET), socket.socket(socket.AF_UNIX)
def said(work):
    try:
        return work()
    except OSError as error:
        return error.errno
libc = ctypes.CDLL(None, use_errno=True)
calls = [250, 248, 425] if os.uname().machine == "x86_64" else [219, 217, 425]
print(said(lambda: socket.socket(40)), *((libc.syscall(call, 0, 0, 0, 0, 0), ctypes.get_errno())[1] for call in calls))
"""
    assert (await _run(_settings(tmp_path), f"python3 -c '{script}'")).split() == ["1"] * 4
