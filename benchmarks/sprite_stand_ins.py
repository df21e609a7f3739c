"""Sprites that only speak the protocol, many in one process: `python -m benchmarks.sprite_stand_ins SPRITES RATE`.

Listens on one port; the `auth` token names the sprite. Each publishes RATE durable events a second while anybody is
connected to it, stamped with the time, and replays them on resume. Prints its port.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import defaultdict

from sprite.protocol.events import WholeText
from sprite.protocol.frames import FrameDecoder, decode_client, encode
from sprite.protocol.messages import STORE, Auth, AuthOk, Ping, StateSync
from sprite.protocol.shapes import MemoryState, SessionState

TEXT = "A sentence such as an agent says while it works, a hundred characters long or so, and then some more."


class StandIn:
    """One sprite: its events, and who hears them."""

    def __init__(self, name: str, rate: float) -> None:
        self.epoch = name
        self._rate = rate
        self._events: list[bytes] = []
        self._writers: set[asyncio.StreamWriter] = set()
        self._task: asyncio.Task[None] | None = None

    def welcome(self, writer: asyncio.StreamWriter, auth: Auth) -> None:
        """The answer to `auth`: a replay or the state; live events from here on."""
        last = len(self._events)
        if auth.client == STORE:
            # It hears what it asks for only, which nobody here has.
            writer.write(encode(AuthOk(1, "bench", self.epoch, last, {})))
            return
        writer.write(encode(AuthOk(1, "bench", self.epoch, last, {})))
        if auth.resume is not None and auth.resume.epoch == self.epoch and auth.resume.last_seq <= last:
            writer.writelines(self._events[auth.resume.last_seq :])
        else:
            session = SessionState(None, None, 0, None, 0)
            memory = MemoryState([], 0, 0, 0, 0.0)
            writer.write(encode(StateSync([], [], [], session, memory, [], None, [], None)))
        self._writers.add(writer)
        if self._task is None and self._rate:
            self._task = asyncio.create_task(self._speak())

    def gone(self, writer: asyncio.StreamWriter) -> None:
        """This one does not listen any more."""
        self._writers.discard(writer)

    def publish(self) -> None:
        """One event, stamped in nanoseconds of the machine's monotonic clock."""
        event = WholeText("m", f"{time.monotonic_ns()} {TEXT}")
        frame = encode(event, seq=len(self._events) + 1)
        self._events.append(frame)
        for writer in self._writers:
            writer.write(frame)

    async def _speak(self) -> None:
        while True:
            await asyncio.sleep(1 / self._rate)
            self.publish()


async def serve(rate: float) -> None:
    """Serves until killed."""
    sprites: defaultdict[str, StandIn] = defaultdict(lambda: StandIn(f"epoch {len(sprites)}", rate))

    async def arrive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        decoder, sprite = FrameDecoder(), None
        try:
            while data := await reader.read(1 << 16):
                decoder.feed(data)
                while frame := decoder.next_frame():
                    payload = decode_client(frame).payload
                    if isinstance(payload, Auth):
                        sprite = sprites[payload.token]
                        sprite.welcome(writer, payload)
                    elif isinstance(payload, Ping) and sprite is not None:
                        # Not what a sprite does: it lets a benchmark say when an event is published.
                        sprite.publish()
        except ConnectionError:
            pass
        finally:
            if sprite is not None:
                sprite.gone(writer)
            writer.close()

    server = await asyncio.start_server(arrive, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(float(sys.argv[1])))
