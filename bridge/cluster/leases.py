"""Ownership of sprites where several bridges share a database: one lease per sprite, renewed while it is needed.

The table `leases` holds the owners, by the database's clock. `LeaseBook` holds the leases that this bridge may still
rely on, by its own clock. Listeners are called about each lost lease, and stop using the sprite at once.
"""

import asyncio
import logging
import time
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final
from weakref import WeakValueDictionary

from bridge.cluster.ownership import NotOwnedError, OnChange, OwnedElsewhere, Owner, Ownership
from bridge.db.database import Database, DatabaseError
from sprite.common.tasks import Service, owned_task
from sprite.protocol.replication import EPOCHS_AHEAD, Lease

#: Interval of renewals, and the duration of a lease without renewal.
BEAT_SECONDS: Final = 2.0
LEASE_SECONDS: Final = 6.0
#: Allows for clocks that run at slightly different rates.
_MARGIN_SECONDS: Final = 0.25
#: An unused lease is kept this long, because a caller that took it is about to use it.
UNUSED_SECONDS: Final = 4.0


@dataclass(slots=True)
class _Entry:
    epoch: int
    #: Times by this bridge's clock.
    ends_at: float
    used_at: float


def since_boot() -> float:
    """Return monotonic seconds, including time in suspend where the system counts it."""
    boot = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot is None else time.clock_gettime(boot)


class LeaseBook:
    """The leases that this bridge may still rely on. Times are seconds of `clock`, which must be monotonic."""

    def __init__(self, clock: Callable[[], float] = since_boot) -> None:
        self._clock = clock
        self._entries: dict[str, _Entry] = {}
        self._users: Counter[str] = Counter()

    def now(self) -> float:
        """Return the time by `clock`. Call it before asking the database."""
        return self._clock()

    def granted(self, sprite: str, epoch: int, asked_at: float) -> None:
        """Record a lease from the database; `asked_at` is the time by `clock` just before the database was asked."""
        ends_at = asked_at + LEASE_SECONDS - _MARGIN_SECONDS
        entry = self._entries.get(sprite)
        if entry is None or entry.epoch != epoch:
            self._entries[sprite] = _Entry(epoch, ends_at, self._clock())
        else:
            entry.ends_at = max(entry.ends_at, ends_at)

    def drop(self, sprite: str) -> bool:
        """Remove a lease. Return whether there was one."""
        return self._entries.pop(sprite, None) is not None

    def epoch(self, sprite: str) -> int | None:
        """Return the epoch (number of the ownership) of a valid lease, or None."""
        entry = self._entries.get(sprite)
        return None if entry is None or entry.ends_at <= self._clock() else entry.epoch

    def sprites(self) -> Collection[str]:
        """Return the sprites with a recorded lease, including leases that have expired."""
        return tuple(self._entries)

    def take_ended(self) -> list[str]:
        """Remove the expired leases and return their sprites."""
        now = self._clock()
        ended = [sprite for sprite, entry in self._entries.items() if entry.ends_at <= now]
        for sprite in ended:
            del self._entries[sprite]
        return ended

    def next_end(self) -> float | None:
        """Return the seconds until the first lease expires, or None without leases."""
        ends = min((entry.ends_at for entry in self._entries.values()), default=None)
        return None if ends is None else max(0.0, ends - self._clock())

    # --- who needs them ---

    def touch(self, sprite: str) -> None:
        """Mark a lease as used now."""
        if (entry := self._entries.get(sprite)) is not None:
            entry.used_at = self._clock()

    @contextmanager
    def using(self, sprite: str) -> Iterator[None]:
        """Keep the sprite's lease, if there is one, in use while the block runs."""
        self._users[sprite] += 1
        try:
            yield
        finally:
            self._users[sprite] -= 1
            if not self._users[sprite]:
                del self._users[sprite]
            self.touch(sprite)

    def unused(self) -> dict[str, int]:
        """Return the sprites whose lease was not used for a while, each with the lease's epoch."""
        limit = self._clock() - UNUSED_SECONDS
        return {
            sprite: entry.epoch
            for sprite, entry in self._entries.items()
            if not self._users[sprite] and entry.used_at <= limit
        }


log = logging.getLogger(__name__)

#: Carries `<sprite>:<epoch>` when a sprite has a new owner.
CHANNEL: Final = "sprite_owner"
AWAY: Final = (
    "The database is unreachable, so it is not known which bridge has this sprite. Nothing is "
    "lost; the bridge retries until the database is back."
)
_STOPPING = "This bridge is stopping; another one takes over the sprite."
#: Cache time for another bridge's ownership, unless a notification arrives first.
_KNOWN_SECONDS = 2.0
#: A database that takes longer to answer counts as away.
_ANSWER_SECONDS = 4.0
#: Of an epoch.
_DIGITS = 19

# Each statement is one transaction: of two concurrent takes of a sprite, the second sees the first one's row. An owner
# that takes its own sprite again keeps the epoch, because no other bridge acted in between.
_TAKE = """
INSERT INTO leases (sprite, owner, address, epoch, expires_at) VALUES (?, ?, ?, 1, db_now() + ?)
ON CONFLICT (sprite) DO UPDATE SET
    epoch = CASE WHEN leases.owner = excluded.owner THEN leases.epoch ELSE leases.epoch + 1 END,
    owner = excluded.owner,
    address = excluded.address,
    expires_at = excluded.expires_at
WHERE leases.expires_at <= db_now() OR leases.owner = excluded.owner
RETURNING epoch, CASE WHEN epoch <> ? THEN db_notify(?, sprite || ':' || epoch) END
"""
_BEAT = """
UPDATE leases SET expires_at = db_now() + ? WHERE owner = ? AND expires_at > db_now() RETURNING sprite, epoch
"""
# Zero, so that a concurrent renewal with an older `db_now()` does not renew the lease.
_GIVE_BACK = "UPDATE leases SET expires_at = 0 WHERE owner = ? AND expires_at > db_now() AND sprite IN ({})"
_GIVE_ALL_BACK = "UPDATE leases SET expires_at = 0 WHERE owner = ? AND expires_at > db_now()"
_OWNER = "SELECT owner, address, epoch FROM leases WHERE sprite = ? AND expires_at > db_now()"
_NOW = "SELECT db_now() AS now"
_OUTGROW = """
UPDATE leases SET epoch = CASE WHEN epoch < ? THEN ? ELSE epoch + 1 END
WHERE sprite = ? AND owner = ? AND epoch = ?
"""


class Leases(Service, Ownership):
    """Hold this bridge's leases on sprites: `async with Leases(database, address, on_death) as leases:`.

    All leases are given back at the end of the block. `address` is this bridge's URL for other bridges. `owner` is
    its name, which is new after each start. `on_death` is called if a background task ends with an error.
    """

    def __init__(
        self,
        database: Database,
        address: str,
        on_death: Callable[[], None],
        *,
        owner: str | None = None,
        book: LeaseBook | None = None,
    ) -> None:
        self.owner = owner or f"bridge-{uuid.uuid4()}"
        self._database = database
        self._address = address
        self._on_death = on_death
        self._book = book or LeaseBook()
        self._listeners: list[OnChange] = []
        #: Known owners, None for no other bridge, and when to look again.
        self._known: dict[str, tuple[Owner | None, float]] = {}
        #: Epochs that this bridge had. Taking one of them again sends no notification.
        self._had: dict[str, int] = {}
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._granted = asyncio.Event()
        self._is_leaving = False
        #: Whether the database answered last time, and the start (monotonic) of each pending query.
        self.is_connected = True
        self._asked_at: dict[object, float] = {}

    async def _open(self, stack: AsyncExitStack) -> None:
        stack.push_async_callback(self.give_all_back)
        for task in (
            owned_task(self._beat_on(), name="lease beats", on_death=self._on_death),
            owned_task(self._watch(), name="lease watch", on_death=self._on_death),
            owned_task(self._listen(), name="lease news", on_death=self._on_death),
        ):
            await stack.enter_async_context(task)

    # --- Ownership ---

    async def own(self, sprite: str) -> Lease:
        """See Ownership."""
        if (epoch := self._book.epoch(sprite)) is None:
            async with self._turn(sprite):
                if (epoch := self._book.epoch(sprite)) is None:
                    epoch = await self._take(sprite)
        self._book.touch(sprite)
        return Lease(self.owner, epoch)

    async def owner_of(self, sprite: str) -> Owner | None:
        """See Ownership."""
        if self.holds(sprite):
            return None
        owner, until = self._known.get(sprite, (None, 0.0))
        return owner if until > self._book.now() else await self._look_up(sprite)

    def holds(self, sprite: str) -> bool:
        """See Ownership."""
        return self._book.epoch(sprite) is not None

    @property
    def away(self) -> str:
        """See Ownership. Also detects a server that does not answer, before the query times out."""
        is_silent = any(time.monotonic() - asked_at > BEAT_SECONDS for asked_at in self._asked_at.values())
        return AWAY if is_silent or not self.is_connected else ""

    def using(self, sprite: str) -> AbstractContextManager[None]:
        """See Ownership."""
        return self._book.using(sprite)

    def epoch(self, sprite: str) -> int | None:
        """See Ownership."""
        return self._book.epoch(sprite)

    async def give_all_back(self) -> None:
        """See Ownership."""
        self._is_leaving = True
        self._tell(sprite for sprite in self._book.sprites() if self._book.drop(sprite))
        # If this fails, other bridges wait until the leases expire.
        with suppress(NotOwnedError):
            await self._ask(_GIVE_ALL_BACK, self.owner)

    def add_listener(self, on_change: OnChange) -> None:
        """See Ownership."""
        self._listeners.append(on_change)

    async def refused(self, sprite: str, epoch: int, newest: int = 0) -> None:
        """Drop the lease `epoch`, because the sprite has seen a larger epoch.

        If the database still lists this bridge as the owner, it is behind (new, or restored from a backup), or another
        party has the sprite's token. Then the next epoch is the time in seconds, which counting cannot have reached, or
        one above the sprite's `newest`, at most `EPOCHS_AHEAD` from now: no sprite would accept later epochs.
        """
        if self._book.epoch(sprite) in {None, epoch} and self._book.drop(sprite):
            self._tell([sprite])
        with suppress(NotOwnedError):
            async with self._turn(sprite):
                now = int((await self._ask(_NOW))[0]["now"])
                least = max(now, min(newest + 1, now + EPOCHS_AHEAD))
                await self._ask(_OUTGROW, least, least, sprite, self.owner, epoch)

    def moved(self, text: str) -> None:
        """Drop a lease that another bridge has taken, as an (untrusted) notification of the database reports."""
        sprite, _, number = text.rpartition(":")
        self._known.pop(sprite, None)
        epoch = self._book.epoch(sprite)
        is_number = number.isascii() and number.isdecimal() and len(number) <= _DIGITS
        if epoch is not None and is_number and int(number) > epoch:
            self._book.drop(sprite)
            self._tell([sprite])

    # --- with the database ---

    async def _take(self, sprite: str) -> int:
        if self._is_leaving:
            raise NotOwnedError(_STOPPING)
        asked_at = self._book.now()
        mine = (sprite, self.owner, self._address, LEASE_SECONDS)
        rows = await self._ask(_TAKE, *mine, self._had.get(sprite, 0), CHANNEL)
        if not rows:
            other = await self._look_up(sprite)
            if other is None:
                raise NotOwnedError("Another bridge has just released this sprite. Try again in a moment.")
            raise OwnedElsewhere(other.address, other.epoch)
        if self._is_leaving:
            raise NotOwnedError(_STOPPING)
        epoch: int = rows[0]["epoch"]
        self._had[sprite] = epoch
        self._known.pop(sprite, None)
        self._book.granted(sprite, epoch, asked_at)
        if not self.holds(sprite):
            raise NotOwnedError(AWAY)
        self._granted.set()
        self._tell([sprite])
        return epoch

    async def _look_up(self, sprite: str) -> Owner | None:
        rows = await self._ask(_OWNER, sprite)
        other = None if not rows or rows[0]["owner"] == self.owner else Owner(rows[0]["address"], rows[0]["epoch"])
        self._known[sprite] = other, self._book.now() + _KNOWN_SECONDS
        return other

    async def _beat_on(self) -> None:
        """Renew all leases, give unused ones back, and detect that the database is unreachable."""
        while True:
            began = self._book.now()
            with suppress(NotOwnedError):
                await self._beat()
                await self._give_back(self._book.unused())
            await asyncio.sleep(max(0.0, began + BEAT_SECONDS - self._book.now()))

    async def _beat(self) -> None:
        asked_at, had = self._book.now(), set(self._book.sprites())
        kept = {row["sprite"]: row["epoch"] for row in await self._ask(_BEAT, LEASE_SECONDS, self.owner)}
        for sprite, epoch in kept.items():
            if self._book.epoch(sprite) == epoch:
                self._book.granted(sprite, epoch, asked_at)
        self._tell(sprite for sprite in had - kept.keys() if self._book.drop(sprite))
        # These had expired by the local clock, but were renewed in the database: give them back, so that others need
        # not wait.
        await self._give_back(kept.keys() - had)

    async def _give_back(self, sprites: Iterable[str]) -> None:
        """Give leases back, except those that are being taken at this moment."""
        async with AsyncExitStack() as turns:
            given: list[str] = []
            for sprite in sprites:
                turn = self._turn(sprite)
                if not turn.locked():
                    await turns.enter_async_context(turn)
                    given.append(sprite)
            unused = self._book.unused()
            given = [sprite for sprite in given if sprite in unused or not self.holds(sprite)]
            self._tell(sprite for sprite in given if self._book.drop(sprite))
            if given:
                await self._ask(_GIVE_BACK.format(", ".join("?" * len(given))), self.owner, *given)

    async def _watch(self) -> None:
        """Notify the listeners of each lease at the moment when it expires by the local clock."""
        while True:
            self._granted.clear()
            if ended := self._book.take_ended():
                log.warning("the leases of sprites ended before they were renewed", extra={"count": len(ended)})
                self._tell(ended)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._book.next_end()):
                    await self._granted.wait()

    async def _listen(self) -> None:
        async for text in self._database.listen(CHANNEL):
            self.moved(text)

    async def _ask(self, sql: str, *parameters: object) -> list[Any]:
        """Run a statement on the database. Raise NotOwnedError if it fails or does not answer in time."""
        question = object()
        self._asked_at[question] = time.monotonic()
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                rows = await self._database.statement(sql, parameters)
        except (DatabaseError, TimeoutError) as error:
            if self.is_connected:
                self.is_connected = False
                code = error.code if isinstance(error, DatabaseError) else "no answer"
                log.warning("leases cannot be renewed (%s): their sprites are served until they expire", code)
            raise NotOwnedError(AWAY) from error
        finally:
            del self._asked_at[question]
        if not self.is_connected:
            self.is_connected = True
            log.info("leases are renewed again")
        return rows

    # --- here ---

    def _turn(self, sprite: str) -> asyncio.Lock:
        """Return a sprite's lock. Under it, the database's answers come in the order of the questions."""
        return self._turns.setdefault(sprite, asyncio.Lock())

    def _tell(self, sprites: Iterable[str]) -> None:
        for sprite in tuple(sprites):
            for listener in self._listeners:
                listener(sprite)
