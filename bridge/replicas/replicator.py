"""Replicate each connected sprite: ask it to ship its log, store the batches, and acknowledge them.

It uses a separate connection beside the room's link, and only while that link is up, so it wakes no machine. Each
sprite's data is limited by a read rate and a quota; one that ships invalid data is paused and affects no other.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace

from bridge.errors import BridgeError
from bridge.hub.link import LinkChange, LinkDownError, LinkError, SpriteConnection
from bridge.hub.room import HubListener, Observer, SpriteHub
from bridge.providers.provider import HostError, printable
from bridge.replicas import store as records
from bridge.replicas.sealed_store import SealedStore
from bridge.replicas.sprite_log import SpriteLog
from bridge.replicas.upkeep import Checks
from sprite.common.tasks import Service, TaskSet, backoff, owned_task
from sprite.protocol.frames import encode
from sprite.protocol.messages import STORE, Error
from sprite.protocol.replication import Ship, ShipAck, Shipped, Unpacker

log = logging.getLogger(__name__)

_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 0.2, 15.0
#: Pause where a retry helps only after an operator has acted, or the sprite was updated.
_REFUSED_SECONDS = 60.0
#: Poll interval for an operator's decision to accept the sprite as it is.
_ACCEPTED_SECONDS = 5.0
#: A sprite whose replication makes no progress for this long may sleep all the same.
_PATIENCE_SECONDS = 120.0
#: Shortest interval between requests to ship everything.
_ANEW_SECONDS = 3600.0
_AGAIN_SECONDS = 20 * 3600.0
#: Time for connecting to a local sprite that is about to be stopped; later it is left alone.
_CONNECT_SECONDS = 5.0
_TIDY_FIRST_SECONDS, _TIDY_SECONDS, _TIDY_PAUSE_SECONDS = 300.0, 86400.0, 0.05
#: Retries of a wipe of forgotten data that the database did not complete.
_WIPE_FIRST_SECONDS, _WIPE_LONGEST_SECONDS = 1.0, 60.0
_LONGEST_WORDS = 300
_SHIP_ID = "ship"

_AHEAD = (
    "the store has more data of this agent than the agent itself, or another log: an old disk or the "
    "agent itself was restored. Nothing is overwritten. Restore the agent from the store, or "
    "continue with it as it is now: python -m bridge store accept {sprite}"
)
_NOT_WIPED = "forgotten data may still be on the database's disk; wiping it is retried until it succeeds{why}"
_AHEAD_FOR_PERSON = (
    "Your agent has less data than its replica here, or another memory: its machine was reset to an "
    "earlier day, or it was restored elsewhere. {kept} Nothing new is stored here until you choose: "
    "restore the replica, or continue with the agent as it is now."
)


class _RefusedError(Exception):
    """The sprite refuses to ship its log, because it is an older version; the message is the sprite's."""


@dataclass(frozen=True, slots=True)
class Standing:
    """State of a replica: seconds behind (None: there is no replica), and a description of problems.

    `files_seen` seconds ago the person's files were scanned, during replication; later changes follow later. `health`
    is the result of the last check of all pieces.
    """

    behind: float | None
    trouble: str
    files_seen: float | None = None
    health: records.Health = field(default_factory=records.Health)


@dataclass(slots=True)
class Following:
    """State of the replication of a sprite. Times in monotonic seconds; `trouble` as text, "" if there is none."""

    is_whole: bool = False
    whole_at: float = float("-inf")
    trouble: str = ""
    progress_at: float = field(default_factory=time.monotonic)
    anew_at: float = float("-inf")
    is_anew: bool = False
    #: Whether the sprite is asked for damaged and missing pieces.
    is_healing: bool = False
    #: Whether the sprite has begun to ship on this connection: it goes on until it has stopped.
    has_answered: asyncio.Event = field(default_factory=asyncio.Event)
    #: Ends the connection, so that the next one asks.
    interrupt: Callable[[], None] = lambda: None
    #: Acknowledges what was stored over the connection; does nothing before its first batch.
    acknowledge: Callable[[], None] = lambda: None

    @property
    def is_hopeful(self) -> bool:
        """Return whether the missing data can be expected soon."""
        return not self.is_whole and not self.trouble and time.monotonic() - self.progress_at < _PATIENCE_SECONDS

    def moved(self, *, is_whole: bool) -> None:
        """Record progress: data was stored in the replica, or (`is_whole`) the sprite has nothing more to send."""
        self.is_whole, self.trouble, self.progress_at = is_whole, "", time.monotonic()
        if is_whole:
            self.whole_at = self.progress_at


class _Ear(HubListener):
    """Notice when the link to the sprite comes up, and end the current attempt to replicate when it goes down."""

    def __init__(self, room: SpriteHub, is_last: Callable[[], bool]) -> None:
        self.is_up = asyncio.Event()
        #: Whether the sprite is being stopped: its last rows arrive after the link has ended.
        self._is_last = is_last
        self._room = room
        self._attempt: asyncio.Timeout | None = None
        self.changed(room.change)

    def changed(self, change: LinkChange) -> None:
        """Note whether the link is up. When it goes down, end the current attempt."""
        del change
        if self._room.is_ready:
            self.is_up.set()
            return
        self.is_up.clear()
        if not self._is_last():
            self.interrupt()

    @asynccontextmanager
    async def attempt(self) -> AsyncIterator[None]:
        """Run the block until the link goes down; then raise TimeoutError."""
        async with asyncio.timeout(None) as attempt:
            self._attempt = attempt
            try:
                yield
            finally:
                self._attempt = None

    def interrupt(self) -> None:
        """End the current attempt, if there is one."""
        if self._attempt is not None and not self._attempt.expired():
            self._attempt.reschedule(0)


class Replicator(Service, Observer):
    """Replicate sprites: `async with Replicator(...) as replicator:`, an observer of the relay."""

    def __init__(
        self,
        store: SealedStore,
        on_death: Callable[[], None],
        kept: Callable[[str], Awaitable[tuple[str, float] | None]],
        forget_notices: Callable[[str], Awaitable[None]],
    ) -> None:
        self._store = store
        #: Removes what else the bridge has of a sprite's text.
        self._forget_notices = forget_notices
        #: Describes a sprite's replica for its person, with its time (Unix seconds); None if there is none.
        self._kept = kept
        self._on_death = on_death
        self._room_of: Callable[[str], SpriteHub | None] = lambda _: None
        self._following: dict[str, Following] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        self._stopping: frozenset[str] = frozenset()
        #: Sprites with forgotten data that may still be on the disk: number of forgets, reason, and task.
        self._forgets: dict[str, int] = {}
        self._unwiped: dict[str, str] = {}
        self._wiping: dict[str, asyncio.Task[None]] = {}
        self.checks = Checks(store, self._heal)
        self._tasks = TaskSet()

    async def _open(self, stack: AsyncExitStack) -> None:
        if await self._store.sprites():
            # Report a missing key now.
            self._store.keyring.current()
        await stack.enter_async_context(self._tasks)
        for task in (
            owned_task(self._tidy_on(), name="store upkeep", on_death=self._on_death),
            owned_task(self.checks.run(), name="store checks", on_death=self._on_death),
        ):
            await stack.enter_async_context(task)

    def follow(self, room_of: Callable[[str], SpriteHub | None]) -> None:
        """Set the function that returns a sprite's room, for sprites that are opened from now on."""
        self._room_of = room_of

    async def stop(self, sprites: Collection[str]) -> None:
        """Replicate these sprites until they have stopped. Return once each has begun to ship its log, or timed out."""
        self._stopping = frozenset(sprites)
        with suppress(TimeoutError):
            async with asyncio.timeout(_CONNECT_SECONDS):
                for sprite in self._stopping & self._running.keys():
                    await self._following[sprite].has_answered.wait()

    def is_unshipped(self, sprite: str) -> bool:
        """Return whether the replica lacks data that is on its way: then the sprite should not sleep yet."""
        return sprite in self._running and self._following[sprite].is_hopeful

    async def standing(self, sprite: str) -> Standing:
        """Return the state of a sprite's replica; wakes no machine."""
        following = self._following.get(sprite) or Following()
        found = await standing(self._store, sprite, following.trouble, self._unwiped.get(sprite, ""))
        return replace(found, files_seen=time.monotonic() - following.whole_at) if following.is_whole else found

    # --- as an observer ---

    def opened(self, sprite: str) -> None:
        """Start to replicate the sprite."""
        following = self._following.setdefault(sprite, Following())
        following.is_whole, following.progress_at = False, time.monotonic()
        self._running[sprite] = self._tasks.start(self._follow(sprite, following), f"follow {sprite}")

    def _heal(self, sprite: str) -> None:
        """Ask a connected sprite for damaged and missing pieces; any other is asked when it connects."""
        if sprite in self._running:
            self._following[sprite].interrupt()

    def closed(self, sprite: str, *, at_rest: bool) -> None:
        """Stop replicating the sprite, unless it is being stopped: its last data is still to come."""
        del at_rest
        if (task := self._running.pop(sprite, None)) is not None and sprite not in self._stopping:
            task.cancel()

    # --- one sprite ---

    async def _follow(self, sprite: str, following: Following) -> None:
        # The relay announces a room once it has it.
        room = self._room_of(sprite)
        if room is None:
            return
        ear, failures = _Ear(room, lambda: sprite in self._stopping), 0
        following.interrupt = ear.interrupt
        with room.heard_by(ear):
            while True:
                await ear.is_up.wait()
                began = following.progress_at
                try:
                    async with ear.attempt():
                        await self._attempt(sprite, room, following)
                except (LinkDownError, HostError, LinkError, OSError, TimeoutError) as error:
                    log.debug("%s is not replicated at the moment: %s", sprite, type(error).__name__)
                except BridgeError as error:
                    # An error of the disk, the database or the key: retry.
                    self._trouble(sprite, following, str(error))
                except Exception:
                    # A bug must not stop the replication for good.
                    log.exception("replicating %s failed", sprite)
                    self._trouble(sprite, following, "replicating it failed; see the bridge's log")
                following.is_whole = False
                if sprite in self._stopping:
                    return
                failures = 0 if following.progress_at > began else failures + 1
                await asyncio.sleep(backoff(failures, _FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS))

    async def _attempt(self, sprite: str, room: SpriteHub, following: Following) -> None:
        """Replicate until the connection ends; report refusals of the store or the sprite, and wait."""
        try:
            await self._ship(sprite, room, following)
        except records.StoreAheadError:
            self._trouble(sprite, following, _AHEAD.format(sprite=sprite))
            words, as_of = await self._kept(sprite) or ("", None)
            before = await self._store.position(sprite)
            room.advise(_AHEAD_FOR_PERSON.format(kept=words), as_of)
            try:
                # An operator may accept the sprite as it is now.
                while (await self._store.position(sprite)).log == before.log:  # noqa: ASYNC110 - it may be said elsewhere
                    await asyncio.sleep(_ACCEPTED_SECONDS)
            finally:
                room.advise("")
        except records.StoreBehindError:
            # The agent is fine. The earlier replica stays as an older generation.
            log.warning("the store of %s was restored from a backup: the sprite ships everything again", sprite)
            await self._store.accept(sprite)
        except records.MissingChunkError as error:
            if time.monotonic() - following.anew_at < _ANEW_SECONDS:
                self._trouble(sprite, following, str(error))
                await asyncio.sleep(_REFUSED_SECONDS)
            following.is_anew, following.anew_at = True, time.monotonic()
        except (_RefusedError, records.StoreFullError, records.BadShipmentError) as error:
            self._trouble(sprite, following, str(error))
            await asyncio.sleep(_REFUSED_SECONDS)

    async def _ship(self, sprite: str, room: SpriteHub, following: Following) -> None:
        position = await self._store.position(sprite)
        # A bridge that had the sprite before may have ended in the middle.
        if await self._store.wipe_is_due(sprite):
            self._wipe(sprite)
        connection = await room.beside(STORE)
        unpacker, through = Unpacker(), 0

        def acknowledge() -> None:
            connection.write(encode(ShipAck(through=through)))

        try:
            after = 0 if following.is_anew else position.through
            if position.log is not None and await self._store.write(sprite, lambda log: log.ask_again(_AGAIN_SECONDS)):
                log.warning("pieces of the store of %s are damaged: it is asked to ship them again", sprite)
                following.is_healing = True
            again = await self._store.read(sprite, SpriteLog.wanted) if following.is_healing else None
            identity = await self._store.write(sprite, SpriteLog.identity)
            asked = Ship(after, position.log, packed=True, again=again, store=identity)
            connection.write(encode(asked, message_id=_SHIP_ID))
            await connection.drain()
            while True:
                shipped = await _shipped(connection, unpacker)
                following.has_answered.set()
                if not _says_nothing_new(shipped, position):
                    position, wipe_is_due = await self._store.take(sprite, shipped, position.through)
                    if wipe_is_due:
                        self._wipe(sprite)
                following.is_anew = False
                if following.is_healing and shipped.whole:
                    following.is_healing = False
                    await self._store.write(sprite, SpriteLog.recount)
                following.moved(is_whole=shipped.whole)
                through, following.acknowledge = shipped.through, acknowledge
                # After a forget, only once the disk is wiped.
                if sprite not in self._wiping:
                    acknowledge()
                await connection.drain()
        finally:
            following.has_answered.clear()
            following.acknowledge = lambda: None
            await connection.close()

    def _wipe(self, sprite: str) -> None:
        """Start to wipe forgotten data from the disk. Only the acknowledgement of the forget waits for it."""
        self._forgets[sprite] = self._forgets.get(sprite, 0) + 1
        if sprite not in self._wiping:
            self._wiping[sprite] = self._tasks.start(self._until_wiped(sprite), f"wipe {sprite}")

    async def _until_wiped(self, sprite: str) -> None:
        failures = 0
        try:
            while True:
                forgets = self._forgets[sprite]
                try:
                    await self._forget_notices(sprite)
                    if not await self._store.finish_wipe(sprite) and forgets == self._forgets[sprite]:
                        break
                except BridgeError as error:
                    log.warning("forgotten data of %s may still be on the database's disk: %s", sprite, error)
                    self._unwiped[sprite] = str(error)
                    await asyncio.sleep(backoff(failures, _WIPE_FIRST_SECONDS, _WIPE_LONGEST_SECONDS))
                    failures += 1
        finally:
            # A later forget starts a new wipe.
            del self._forgets[sprite], self._wiping[sprite]
            self._unwiped.pop(sprite, None)
        if (following := self._following.get(sprite)) is not None:
            following.acknowledge()

    def _trouble(self, sprite: str, following: Following, words: str) -> None:
        if following.trouble != words:
            log.warning("the log of %s is not stored: %s", sprite, words)
        following.trouble = words

    # --- all of them ---

    async def _tidy_on(self) -> None:
        """Delete expired data of every sprite once a day."""
        await asyncio.sleep(_TIDY_FIRST_SECONDS)
        while True:
            try:
                for sprite in await self._store.sprites():
                    await self._tidy(sprite)
                    await asyncio.sleep(_TIDY_PAUSE_SECONDS)
            except BridgeError as error:
                log.warning("the store cannot be tidied: %s", error)
            await asyncio.sleep(_TIDY_SECONDS)

    async def _tidy(self, sprite: str) -> None:
        try:
            await self._store.tidy(sprite)
            if await self._store.wipe_is_due(sprite):
                self._wipe(sprite)
        except BridgeError as error:
            log.warning("the store of %s cannot be tidied: %s", sprite, error)


async def _shipped(connection: SpriteConnection, unpacker: Unpacker) -> Shipped:
    """Return the next batch, skipping other messages. Raise StoreAheadError, StoreBehindError or _RefusedError."""
    while True:
        message = await connection.message()
        payload = message.payload
        if isinstance(payload, Shipped):
            try:
                # A few bytes can hold many rows.
                return payload if payload.packed is None else await asyncio.to_thread(unpacker.unpack, payload)
            except ValueError as error:
                raise records.BadShipmentError(f"The sprite shipped invalid data: {error}") from error
        if isinstance(payload, Error) and message.reply_to == _SHIP_ID:
            if payload.code == "store_ahead":
                raise records.StoreAheadError
            if payload.code == "store_behind":
                raise records.StoreBehindError
            if payload.code == "ship_replaced":
                raise LinkError("The sprite already ships its log to another connection.")
            raise _RefusedError(f"the sprite does not ship its log: {printable(payload.message[:_LONGEST_WORDS])}")


def _says_nothing_new(shipped: Shipped, position: records.Position) -> bool:
    """Return whether a batch only repeats that the replica is complete, so that it need not be stored."""
    is_same = shipped.log == position.log and shipped.through == position.through
    return is_same and position.is_whole and shipped.whole and not (shipped.rows or shipped.chunks)


async def standing(store: SealedStore, sprite: str, trouble: str = "", why: str = "") -> Standing:
    """Return the state of a replica, replicated or not; `why` explains why forgotten data could not be wiped."""
    try:
        # While a new generation is incomplete, the earlier one is the newest state.
        followed, position, wipe_is_due, health = await store.read(
            sprite, lambda log: (log.position(), log.newest(), log.wipes_due() > 0, log.health())
        )
        if not trouble and wipe_is_due:
            trouble = _NOT_WIPED.format(why=f" ({why})" if why else "")
        # New data is not stored while there is trouble.
        if followed.log is not None and followed.is_whole and not trouble:
            return Standing(0.0, trouble, health=health)
    except BridgeError as error:
        return Standing(None, str(error))
    if position.at is None:
        return Standing(None, trouble, health=health)
    behind = max(0.0, time.time() - (position.whole_at or position.at))
    return Standing(behind, trouble, health=health)
