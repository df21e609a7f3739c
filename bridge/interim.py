"""Until relay.py and llm_proxy.py are there: one channel per WebSocket, the offline model directly."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from types import TracebackType
from typing import Any, Self

from aiohttp import WSMsgType, web

from bridge.hosts import Host


class Relay:
    def __init__(self, host: Host) -> None:
        self._host = host

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    async def serve(self, websocket: web.WebSocketResponse, person: str) -> None:
        def frame(kind: str, payload: Any) -> str:
            return json.dumps(
                {"type": kind, "id": str(uuid.uuid4()), "timestamp": int(time.time() * 1000), "payload": payload}
            )

        first = json.loads(await websocket.receive_str())
        await websocket.send_str(frame("link", {"state": "connecting", "detail": ""}))
        reached = await self._host.reach(person, lambda phase, words: None)
        auth: dict[str, Any] = {"token": reached.token, "protocol": 1, "client": "interim"}
        if first["payload"].get("epoch"):
            auth["resume"] = first["payload"]
        reached.channel.write(frame("auth", auth).encode() + b"\n")

        async def down() -> None:
            rest = b""
            while data := await reached.channel.read():
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    if b'"type":"auth_ok"' in line.replace(b" ", b"")[:200]:
                        await websocket.send_str(line.decode())
                        await websocket.send_str(frame("link", {"state": "ready", "detail": ""}))
                    else:
                        await websocket.send_str(line.decode())
            await websocket.close()

        task = asyncio.create_task(down())
        try:
            async for message in websocket:
                if message.type is WSMsgType.TEXT:
                    reached.channel.write(message.data.encode() + b"\n")
                    await reached.channel.drain()
        finally:
            task.cancel()
            await reached.channel.close()
