"""Fuzz a sprite's port, before and after authentication: it stays alive and serves honest clients."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hypothesis import strategies as st

from sprite.protocol.frames import decode_server
from sprite.protocol.messages import CLIENT_TYPES
from tests.fuzz.campaign import attack
from tests.fuzz.health import Health
from tests.fuzz.inputs import cut, frames, with_ids
from tests.harness import PATIENCE, Client, SpriteProcess, sprite_process


@dataclass(frozen=True, slots=True)
class Visit:
    """One connection: whether it authenticates first, what it sends, in which pieces, and how it closes."""

    knows_token: bool
    frames: list[bytes]
    newline_at_end: bool
    cuts: list[int]
    goes: Literal["in order", "by reset"]


VISITS = st.builds(
    Visit,
    knows_token=st.sampled_from([True, True, True, False]),
    frames=st.lists(frames(CLIENT_TYPES), min_size=1, max_size=8),
    newline_at_end=st.booleans(),
    cuts=st.lists(st.integers(0, 2**21), max_size=5),
    goes=st.sampled_from(["in order", "in order", "by reset"]),
)


class Stage:
    """A sprite, and an honest client that stays connected during the attack. A dead sprite is replaced."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stack = AsyncExitStack()
        self._lives = 0
        self.sprite: SpriteProcess
        self._honest: Client
        self._stack_id = ""
        self._health: Health

    async def start(self) -> None:
        self._lives += 1
        workspace = self._folder / f"life{self._lives}" / "workspace"
        workspace.mkdir(parents=True)
        self.sprite = await self._stack.enter_async_context(sprite_process(workspace, None))
        self._honest = await self._stack.enter_async_context(self.sprite.client())
        # The first mission has loaded its modules.
        await self._honest.mission("Hello")
        made = await self._honest.ask("canvas_interaction", {"action": "create_stack", "name": "Canvas"})
        self._stack_id = made["payload"]["stack_id"]
        self._health = Health(self.sprite.process.pid, workspace.parent / "stderr.log")

    async def visit(self, visit: Visit) -> None:
        if self.sprite.process.returncode is not None:
            await self.start()
        async with asyncio.timeout(PATIENCE):
            await self._play(visit)
        self._health.check()
        answer = await self._honest.ask("memory", {"op": "files"})
        assert answer["type"] == "memory_result", answer
        self._honest.received.clear()

    async def _play(self, visit: Visit) -> None:
        async with self.sprite.raw() as client:
            if visit.knows_token:
                client.send("auth", {"token": self.sprite.token, "protocol": 1, "client": "fuzz"})
                await client.until(lambda m: m["type"] == "auth_ok")
            data = with_ids(b"\n".join(visit.frames) + b"\n" * visit.newline_at_end, self._stack_id, "none")
            with contextlib.suppress(OSError):
                for piece in cut(data, visit.cuts):
                    client.writer.write(piece)
                    await client.writer.drain()
                if visit.goes == "by reset":
                    sock = client.writer.get_extra_info("socket")
                    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    client.writer.transport.abort()
                else:
                    client.writer.write_eof()
                    # Every answer is readable up to the end of the connection.
                    while line := await client.reader.readline():
                        decode_server(line)

    async def end(self) -> None:
        await self._honest.close()
        await self._health.check_size()
        await self._stack.aclose()
        assert self.sprite.process.returncode == 0


def test_arbitrary_bytes_harm_no_sprite_or_client(tmp_path: Path) -> None:
    attack("frames", VISITS, Stage(tmp_path))
