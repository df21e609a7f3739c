"""Pages and terminals on one side, sprites on the other: who is served in which room, and when a room is closed.

A room is one sprite with everybody who looks at it. It stays open for a while after the last of them has gone, until
what they wrote is delivered, and while the sprite is at work; then the connection is closed, so that the sprite's
machine may sleep.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from aiohttp import WSCloseCode

from bridge.relay.room import IDLE_SECONDS, Room
from bridge.relay.subscriber import Subscriber
from bridge.tasks import TaskSet
from sprite.protocol.frames import FatalPeerError
from sprite.protocol.messages import Error

if TYPE_CHECKING:
    from types import TracebackType

    from aiohttp import web

    from bridge.hosts.host import Host
    from bridge.relay.observer import Observer

log = logging.getLogger(__name__)

#: A reload, or a phone that changes its network, finds the connection as it was.
_LINGER_SECONDS = 30.0
_LOOK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Seen:
    """One sprite as the relay knows it; `last_seen_at` in Unix seconds, now while the link is ready."""

    sprite: str
    state: str
    detail: str
    clients: int
    version: str | None
    last_seen_at: float | None


class Relay:
    """`async with Relay(host) as relay:`; `serve` for each WebSocket."""

    def __init__(
        self,
        host: Host,
        observers: Sequence[Observer] = (),
        *,
        linger_seconds: float = _LINGER_SECONDS,
        idle_seconds: float = IDLE_SECONDS,
    ) -> None:
        self._host = host
        self._observers = list(observers)
        self._idle_seconds = idle_seconds
        self._linger_seconds = linger_seconds
        self._rooms: dict[str, Room] = {}
        self._keepers = TaskSet()
        self._past: dict[str, Seen] = {}
        self._serving: set[asyncio.Task[object]] = set()
        self._stopping = asyncio.Event()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stopping.set()
        if self._serving:
            await asyncio.wait(self._serving)
        await self._keepers.close()

    def snapshot(self) -> list[Seen]:
        """Every sprite that anybody was connected to since the start, by name."""
        now = {name: _seen(name, room, self._past.get(name)) for name, room in self._rooms.items()}
        return [seen for _, seen in sorted((self._past | now).items())]

    @contextmanager
    def held(self, sprite: str) -> Iterator[Room]:
        """The sprite's room, opened if need be and kept while the block runs: for what the bridge itself asks."""
        room = self._room(sprite)
        with room.held():
            yield room

    def add_observer(self, observer: Observer) -> None:
        """Tells one more of what sprites say from here on."""
        self._observers.append(observer)

    def is_ready(self, sprite: str) -> bool:
        """Whether there is a link to the sprite at this moment: what is asked now wakes nobody."""
        room = self._rooms.get(sprite)
        return room is not None and room.is_ready

    async def serve(self, websocket: web.WebSocketResponse, sprite: str) -> None:
        """Serves one WebSocket, prepared by the caller, until it is closed: by the client, or with the relay."""
        member = Subscriber(websocket)
        sender = asyncio.create_task(member.send_all(), name=f"send {sprite}")
        listening = asyncio.create_task(self._listen(member, sprite), name=f"listen {sprite}")
        stopping = asyncio.create_task(self._stopping.wait(), name="stopping")
        this = asyncio.current_task()
        assert this is not None  # noqa: S101 - a coroutine runs in one
        self._serving.add(this)
        code, reason = WSCloseCode.OK, b""
        try:
            await asyncio.wait({sender, listening, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if stopping.done():
                code, reason = WSCloseCode.GOING_AWAY, b"the bridge is stopping"
            else:
                for ended in (listening, sender):
                    if ended.done():
                        ended.result()
        except FatalPeerError as error:
            too_big = error.code == "frame_too_large"
            code, reason = (
                (WSCloseCode.MESSAGE_TOO_BIG if too_big else WSCloseCode.POLICY_VIOLATION),
                error.code.encode(),
            )
            member.say(Error(error.code, str(error)), reply_to=error.reply_to)
        except ConnectionError:
            log.debug("a client of %s is gone", sprite)
        finally:
            for task in (listening, stopping):
                task.cancel()
            await asyncio.gather(listening, stopping, return_exceptions=True)
            try:
                await member.leave(sender, code, reason)
            finally:
                self._serving.discard(this)

    async def _listen(self, member: Subscriber, sprite: str) -> None:
        room = self._room(sprite)
        room.enter(member)
        try:
            await member.first()
            room.resumed(member)
            async for message in member.messages():
                await room.take(member, message)
        finally:
            room.leave(member)

    def _room(self, sprite: str) -> Room:
        """The sprite's room, opened for its first visitor."""
        room = self._rooms.get(sprite)
        if room is None:
            room = self._rooms[sprite] = Room(self._host, sprite, self._observers, idle_seconds=self._idle_seconds)
            for observer in self._observers:
                observer.opened(sprite)
            self._keepers.start(self._keep(room, sprite), f"room {sprite}")
        return room

    async def _keep(self, room: Room, sprite: str) -> None:
        """Keeps a room open as long as it is needed, and a while longer; one whose link has died is closed."""
        async with room:
            try:
                needed_at = time.monotonic()
                while not room.has_died and (room.is_needed or time.monotonic() - needed_at < self._linger_seconds):
                    if room.is_needed:
                        needed_at = time.monotonic()
                    await asyncio.sleep(min(_LOOK_SECONDS, self._linger_seconds))
            finally:
                # New visitors get a new room while this one closes.
                self._past[sprite] = _seen(sprite, room, self._past.get(sprite))
                del self._rooms[sprite]
                for observer in self._observers:
                    observer.closed(sprite, at_rest=room.is_at_rest)


def _seen(sprite: str, room: Room, past: Seen | None) -> Seen:
    """`past` is what was known before this room was opened."""
    change = room.change
    return Seen(
        sprite=sprite,
        state=change.state,
        detail=change.detail,
        clients=room.members,
        version=room.server_version or (past.version if past else None),
        last_seen_at=room.last_seen_at or (past.last_seen_at if past else None),
    )
