"""Connect pages and terminals with sprites: one room for each sprite with all its clients.

A room stays open for a while after its last client, until its messages are delivered, and while the sprite is busy.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import replace
from typing import Self

from aiohttp import WSCloseCode, web

from bridge.cluster.ownership import Ownership
from bridge.hub.room import Observer, Seen, SpriteHub
from bridge.hub.subscriber import Subscriber
from bridge.providers.provider import Host
from sprite.common.tasks import TaskSet
from sprite.protocol.frames import FatalPeerError, VisitorMessage
from sprite.protocol.messages import ConnectionUpdate, Error, System

log = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0
#: A reload, or a phone that changes its network, finds the same connection.
_LINGER_SECONDS = 30.0


async def _no_limit(_sprite: str) -> bool:
    """Do nothing and report success: without budgets there is no limit to raise."""
    return True


class Relay:
    """Connect clients with sprites: `async with Relay(host) as relay:`; call `serve` for each WebSocket."""

    def __init__(
        self,
        host: Host,
        observers: Sequence[Observer] = (),
        *,
        ownership: Ownership | None = None,
        is_unshipped: Callable[[str], bool] = lambda _: False,
        raise_today: Callable[[str], Awaitable[bool]] = _no_limit,
    ) -> None:
        self._host = host
        #: Raises a sprite's limit for today; returns False where that cannot be stored.
        self.raise_today = raise_today
        self._ownership = ownership or Ownership()
        self._ownership.add_listener(self._owner_changed)
        self._observers = list(observers)
        self._is_unshipped = is_unshipped
        self._rooms: dict[str, SpriteHub] = {}
        self._keepers = TaskSet()
        self._past: dict[str, Seen] = {}
        self._serving: set[asyncio.Task[object]] = set()
        self._stopping = asyncio.Event()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        self._stopping.set()
        if self._serving:
            await asyncio.wait(self._serving)
        await self._keepers.close()

    def snapshot(self) -> list[Seen]:
        """Return every sprite with a connection since the start, by name."""
        now = {name: room.seen(self._past.get(name)) for name, room in self._rooms.items()}
        return [seen for _, seen in sorted((self._past | now).items())]

    @contextmanager
    def held(self, sprite: str) -> Iterator[SpriteHub]:
        """Yield the sprite's room, opened if needed and kept while the block runs: for the bridge's own requests."""
        room = self._room(sprite)
        with room.held():
            yield room

    def room_of(self, sprite: str) -> SpriteHub | None:
        """Return the sprite's room, if it is open."""
        return self._rooms.get(sprite)

    def add_observer(self, observer: Observer) -> None:
        """Add an observer of all rooms from now on."""
        self._observers.append(observer)

    def is_ready(self, sprite: str) -> bool:
        """Return whether there is a link to the sprite now, so that a request wakes no machine."""
        room = self._rooms.get(sprite)
        return room is not None and room.is_ready

    def epoch(self, sprite: str) -> int | None:
        """Return the number of this bridge's ownership of a sprite; facts from another epoch may be outdated."""
        return self._ownership.epoch(sprite)

    async def serve(self, websocket: web.WebSocketResponse, sprite: str, transport: asyncio.Transport | None) -> None:
        """Serve one prepared WebSocket until the client or the relay closes it. `transport` is the TCP one below it."""
        member = Subscriber(websocket, transport)
        sender = asyncio.create_task(member.send_all(), name=f"send {sprite}")
        listening = asyncio.create_task(self._listen(member, sprite), name=f"listen {sprite}")
        stopping = asyncio.create_task(self._stopping.wait(), name="stopping")
        passing_on = asyncio.create_task(member.is_passed_on.wait(), name=f"pass on {sprite}")
        this = asyncio.current_task()
        assert this is not None  # noqa: S101 - a coroutine runs in one
        self._serving.add(this)
        code, reason = WSCloseCode.OK, b""
        try:
            await asyncio.wait({sender, listening, stopping, passing_on}, return_when=asyncio.FIRST_COMPLETED)
            if stopping.done():
                code, reason = WSCloseCode.GOING_AWAY, b"the bridge is stopping"
            elif passing_on.done():
                code, reason = WSCloseCode.SERVICE_RESTART, b"another bridge has the sprite"
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
            for task in (listening, stopping, passing_on):
                task.cancel()
            await asyncio.gather(listening, stopping, passing_on, return_exceptions=True)
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
                if await self._is_raised(member, sprite, message):
                    await room.take(member, message)
        finally:
            room.leave(member)

    async def _is_raised(self, member: Subscriber, sprite: str, message: VisitorMessage) -> bool:
        """Raise today's limit if a message asks for it; return whether to forward the message."""
        if not (isinstance(message.payload, System) and message.payload.raise_limit):
            return True
        is_raised = await self.raise_today(sprite)
        if not is_raised:
            words = "Today's limit cannot be raised now, because the bridge cannot store it. Try again soon."
            member.say(Error("storage", words), reply_to=message.id)
        return is_raised

    def warn(self, sprite: str, words: str) -> None:
        """Warn all clients of a sprite that a share of the day's budget is spent."""
        self.tell(sprite, Error("budget", words))

    def tell(self, sprite: str, payload: Error | ConnectionUpdate) -> None:
        """Send a message of the bridge to all clients of a sprite."""
        if (room := self._rooms.get(sprite)) is not None:
            room.tell(payload)

    def _owner_changed(self, sprite: str) -> None:
        if (room := self._rooms.get(sprite)) is not None:
            room.owner_changed()

    def _stale(self, sprite: str, epoch: int, newest: int) -> None:
        self._keepers.start(self._ownership.refused(sprite, epoch, newest), f"stale owner of {sprite}")

    def _room(self, sprite: str) -> SpriteHub:
        """Return the sprite's room, opened for its first client."""
        room = self._rooms.get(sprite)
        if room is None:
            room = self._rooms[sprite] = SpriteHub(
                self._host,
                sprite,
                self._observers,
                ownership=self._ownership,
                on_stale=lambda epoch, newest: self._stale(sprite, epoch, newest),
                is_unshipped=self._is_unshipped,
            )
            for observer in self._observers:
                observer.opened(sprite)
            self._keepers.start(self._keep(room, sprite), f"room {sprite}")
        return room

    async def _keep(self, room: SpriteHub, sprite: str) -> None:
        """Keep a room open while it is needed and a while longer; close it if its link has died."""
        async with AsyncExitStack() as stack:
            stack.enter_context(self._ownership.using(sprite))
            await stack.enter_async_context(room)
            try:
                needed_at = time.monotonic()
                while not room.is_over and (room.is_needed or time.monotonic() - needed_at < _LINGER_SECONDS):
                    if room.is_needed:
                        needed_at = time.monotonic()
                    await room.look_whether_owned()
                    with suppress(TimeoutError):
                        async with asyncio.timeout(min(_LOOK_SECONDS, _LINGER_SECONDS)):
                            await room.is_elsewhere.wait()
            finally:
                # New clients get a new room while this one closes.
                self._past[sprite] = replace(room.seen(self._past.get(sprite)), slow=())
                del self._rooms[sprite]
                for observer in self._observers:
                    observer.closed(sprite, at_rest=room.is_at_rest)
