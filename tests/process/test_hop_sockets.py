"""WebSockets forwarded from one bridge to another: frames, close codes, backpressure and failures of each end."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import WSCloseCode, WSMsgType, web

from bridge.cluster.forward import PASSED
from tests.harness import PATIENCE
from tests.hop_stage import Two, bearing, two
from tests.inspection import comes_to_rest, eventually

#: More data than the buffers of two pairs of sockets.
MANY, PIECE = 400, b"x" * 2**17
HANDSHAKE = (
    "GET /files/socket HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nConnection: Upgrade\r\n"
    "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
)
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def text(words: str) -> bytes:
    """Return a short text frame as a server sends it."""
    return bytes((0x81, len(words))) + words.encode()


def closed(code: int, reason: str = "") -> bytes:
    """Return a close frame as a server sends it."""
    return bytes((0x88, 2 + len(reason))) + code.to_bytes(2, "big") + reason.encode()


def typed(words: str) -> bytes:
    """Return a short masked text frame as a client sends it."""
    return bytes((0x81, 0x80 | len(words))) + bytes(4) + words.encode()


@asynccontextmanager
async def raw_client(stage: Two, early: bytes = b"") -> AsyncIterator[Streams]:
    """Open a client socket that sends `early` together with its handshake."""
    host = stage.other.url.removeprefix("http://")
    reader, writer = await asyncio.open_connection(*host.split(":"))
    try:
        writer.write(HANDSHAKE.format(host=host, token=stage.token).encode() + early)
        async with asyncio.timeout(PATIENCE):
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 101"), head
            yield reader, writer
    finally:
        writer.transport.abort()


@asynccontextmanager
async def raw_owner(folder: Path, act: Callable[..., Awaitable[None]], early: bytes = b"") -> AsyncIterator[Two]:
    """Start an owner that accepts the handshake and then runs `act` on the connection."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            if "/healthz" in head:
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            else:
                key = next(line.partition(": ")[2] for line in head.splitlines() if "WebSocket-Key" in line)
                accept = hashlib.sha1(key.encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11").digest()  # noqa: S324 - RFC 6455 requires SHA-1
                writer.write(
                    b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                    b"Sec-WebSocket-Accept: " + base64.b64encode(accept) + b"\r\n\r\n" + early
                )
                await act(reader, writer)
        writer.close()

    async def none(_request: web.Request) -> web.StreamResponse:
        raise AssertionError("another bridge owns the sprite")

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        async with two(folder, none) as stage:
            stage.places.at["ada"] = (f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", 1)
            yield stage
    finally:
        server.close()


async def echo(request: web.Request) -> web.StreamResponse:
    websocket = web.WebSocketResponse()
    await websocket.prepare(request)
    async for message in websocket:
        if message.data == "leave":
            await websocket.close(code=4321, message=b"as you wish")
        else:
            await websocket.send_frame(
                message.data.encode() if message.type is WSMsgType.TEXT else message.data, message.type
            )
    return websocket


async def test_forwarded_socket_passes_frames_and_closes(tmp_path: Path) -> None:
    async with two(tmp_path, echo) as stage, stage.socket() as client:
        for words in ("hello", "", "ä" * 100_000):
            await client.send_str(words)
            assert await client.receive_str() == words
        await client.send_bytes(b"\0\xff")
        assert await client.receive_bytes() == b"\0\xff"
        await client.send_str("leave")
        end = await client.receive()
        assert (end.type, end.data, end.extra) == (WSMsgType.CLOSE, 4321, "as you wish")
        await eventually(lambda: not stage.other.hops.under_way(), "a forward is still open")


async def test_forwarded_socket_passes_pings_and_close_codes(tmp_path: Path) -> None:
    """The far end answers pings; the owner receives the client's close code and reason."""
    heard: asyncio.Queue[tuple[Any, ...]] = asyncio.Queue()

    async def socket(request: web.Request) -> web.StreamResponse:
        websocket = web.WebSocketResponse(autoping=False)
        await websocket.prepare(request)
        await websocket.ping(b"are you there")
        message = await websocket.receive()
        await heard.put((message.type, message.data))
        message = await websocket.receive()
        await heard.put((message.type, message.data, message.extra))
        return websocket

    async with two(tmp_path, socket) as stage, stage.socket(autoping=False) as client:
        ping = await client.receive()
        assert (ping.type, ping.data) == (WSMsgType.PING, b"are you there")
        await client.pong(b"I am")
        assert await asyncio.wait_for(heard.get(), PATIENCE) == (WSMsgType.PONG, b"I am")
        await client.close(code=4001, message=b"enough")
        assert await asyncio.wait_for(heard.get(), PATIENCE) == (WSMsgType.CLOSE, 4001, "enough")


async def test_oversized_message_is_rejected_by_header(tmp_path: Path) -> None:
    """The declared size counts, also when it is spread over continuation frames."""
    async with two(tmp_path, echo) as stage:
        async with stage.socket() as client:
            await client.send_str("x" * (2**20 + 1))
            assert (await client.receive()).data == WSCloseCode.MESSAGE_TOO_BIG
        part = b"\x01\xff" + (2**19).to_bytes(8, "big") + bytes(4) + bytes(2**19)
        # A fragment of 512 KiB, then the header of a second one.
        async with raw_client(stage) as (reader, writer):
            writer.write(part + b"\0" + part[1:14])
            close = await reader.readexactly(4)
            assert close[:1] + close[2:] == b"\x88" + WSCloseCode.MESSAGE_TOO_BIG.to_bytes(2, "big")
        await eventually(lambda: not stage.other.hops.under_way(), "a forward is still open")


async def test_refused_handshake_returns_owner_response(tmp_path: Path) -> None:
    async def refuse(_request: web.Request) -> web.StreamResponse:
        return web.json_response({"error": {"message": "Close one of them."}}, status=429, headers={"Retry-After": "9"})

    headers = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    headers["Sec-WebSocket-Key"] = "dGhlIHNhbXBsZSBub25jZQ=="
    async with two(tmp_path, refuse) as stage, stage.ask(headers=headers) as response:
        assert (response.status, response.headers["Retry-After"]) == (429, "9")
        assert (await response.json())["error"]["message"] == "Close one of them."


async def test_bytes_sent_with_handshake_are_forwarded(tmp_path: Path) -> None:
    async def act(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        early = await reader.readexactly(len(typed("early")))
        mask = int.from_bytes(early[2:6] * 2)
        words = (int.from_bytes(early[6:].ljust(8)) ^ mask).to_bytes(8)[:5]
        writer.write(text(f"you said {words.decode()}") + closed(4000))
        await reader.read(1)

    async with (
        raw_owner(tmp_path, act, text("welcome")) as stage,
        raw_client(stage, typed("early")) as (reader, _),
    ):
        said = text("welcome") + text("you said early") + closed(4000)
        assert await reader.readexactly(len(said)) == said


async def test_slow_reader_causes_backpressure(tmp_path: Path) -> None:
    """The bridge between the two ends buffers only a part of the data, in either direction."""
    sent, go_on = 0, asyncio.Event()

    async def socket(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        websocket = web.WebSocketResponse(compress=False)
        await websocket.prepare(request)
        for _ in range(MANY):
            await websocket.send_bytes(PIECE)
            sent += 1
        await go_on.wait()
        for _ in range(MANY):
            assert await websocket.receive_bytes() == PIECE
        await websocket.close(code=4000)
        return websocket

    async with two(tmp_path, socket) as stage, stage.socket() as client:
        assert 0 < await comes_to_rest(lambda: sent) < MANY * 3 / 4
        for _ in range(MANY):
            assert await client.receive_bytes() == PIECE
        sent = 0

        async def write() -> None:
            nonlocal sent
            for _ in range(MANY):
                await client.send_bytes(PIECE)
                sent += 1

        writing = asyncio.create_task(write())
        assert 0 < await comes_to_rest(lambda: sent) < MANY * 3 / 4
        go_on.set()
        await writing
        assert (await client.receive()).data == 4000


# --- failures of one end ---


async def test_owner_abort_closes_page_with_going_away(tmp_path: Path) -> None:
    """The close reason asks the page to reconnect."""

    async def vanish(request: web.Request) -> web.StreamResponse:
        websocket = web.WebSocketResponse()
        await websocket.prepare(request)
        await websocket.send_str("hello")
        await websocket.receive()
        assert request.transport is not None
        request.transport.abort()
        return websocket

    async with two(tmp_path, vanish) as stage, stage.socket() as client:
        assert await client.receive_str() == "hello"
        await client.send_str("go")
        end = await client.receive()
        assert (end.data, "reconnect" in end.extra) == (WSCloseCode.GOING_AWAY, True)


async def test_owner_abort_inside_frame_sends_no_close(tmp_path: Path) -> None:
    """A close frame written into an unfinished frame would be read as its content."""

    async def act(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(text("whole") + text("and a half")[:6])
        await reader.read(1)

    async with raw_owner(tmp_path, act) as stage, stage.socket() as client:
        assert await client.receive_str() == "whole"
        await client.send_str("go")
        assert (await client.receive()).data == WSCloseCode.GOING_AWAY
        await eventually(lambda: not stage.other.hops.under_way(), "a forward is still open")


async def test_stopping_bridge_closes_forwarded_sockets(tmp_path: Path) -> None:
    async def act(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(text("whole") + text("and two halves")[:6])
        heard = await reader.readexactly(2)
        assert heard[0] == 0x88
        await reader.read()

    async with raw_owner(tmp_path, act) as stage, raw_client(stage) as (reader, writer):
        assert await reader.readexactly(len(text("whole"))) == text("whole")
        ending = asyncio.create_task(stage.other.owner_router.hops.end_all())
        said = closed(WSCloseCode.GOING_AWAY, "the bridge stops")
        assert await reader.readexactly(len(said)) == said
        # The client's close frame completes the closing handshake.
        writer.write(b"\x88\x80" + bytes(4))
        assert await reader.read() == b""
        await ending
        async with stage.ask() as response:
            assert response.status == 503


async def test_client_abort_ends_owner_socket(tmp_path: Path) -> None:
    inside, ended = asyncio.Event(), asyncio.Event()

    async def stay(request: web.Request) -> web.StreamResponse:
        websocket = web.WebSocketResponse()
        await websocket.prepare(request)
        try:
            inside.set()
            await websocket.receive()
        finally:
            ended.set()
        return websocket

    async with two(tmp_path, stay) as stage:
        async with raw_client(stage):
            await asyncio.wait_for(inside.wait(), PATIENCE)
        await asyncio.wait_for(ended.wait(), PATIENCE)
        await eventually(lambda: not stage.other.hops.under_way(), "a forward is still open")


async def test_stalled_peer_is_disconnected(tmp_path: Path) -> None:
    ended: asyncio.Queue[str] = asyncio.Queue()

    async def socket(request: web.Request) -> web.StreamResponse:
        websocket = web.WebSocketResponse()
        await websocket.prepare(request)
        try:
            if await websocket.receive_str() == "listen":
                await asyncio.Event().wait()
            while True:
                await websocket.send_bytes(PIECE)
        finally:
            await ended.put("gone")
        return websocket

    async with two(tmp_path, socket, stall_seconds=0.3) as stage:
        async with raw_client(stage) as (_, writer):
            writer.write(typed("talk"))
            assert await asyncio.wait_for(ended.get(), PATIENCE) == "gone"
            await eventually(lambda: not stage.other.hops.under_way(), "a forward is still open")
        async with stage.socket() as client:
            await client.send_str("listen")

            async def talk() -> None:
                while True:
                    await client.send_bytes(PIECE)

            talking = asyncio.create_task(talk())
            assert (await client.receive()).data == WSCloseCode.GOING_AWAY
            talking.cancel()
            await asyncio.gather(talking, return_exceptions=True)
            await eventually(lambda: not stage.other.hops.under_way(), "a forward is still open")


async def test_forwarded_handshake_strips_credentials_and_spoofed_headers(tmp_path: Path) -> None:
    async def told(request: web.Request) -> web.StreamResponse:
        seen = {name.lower(): value for name, value in request.headers.items()}
        return web.json_response({**seen, "person": request[PASSED].person}, status=403)

    async with two(tmp_path, told) as stage:
        headers = bearing(stage.token, {"X-Bridge-Person": "grace", "Cookie": "a=b", "X-Forwarded-For": "6.6.6.6"})
        with pytest.raises(aiohttp.WSServerHandshakeError):
            await stage.other.session.ws_connect(f"{stage.other.url}/files/socket", headers=headers)
        headers |= {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
        headers["Sec-WebSocket-Key"] = "dGhlIHNhbXBsZSBub25jZQ=="
        async with stage.other.session.get(f"{stage.other.url}/files/socket", headers=headers) as response:
            seen = await response.json()
        assert (seen["person"], seen["x-forwarded-for"], seen["upgrade"]) == ("ada", "127.0.0.1", "websocket")
        assert not {"cookie", "authorization", "x-bridge-person"} & set(seen)
