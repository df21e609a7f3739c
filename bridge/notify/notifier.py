"""Deliver notices through every channel, rate-limited.

The table `notices` has the keys of delivered ones, so that none is repeated, and the pending ones for after a crash.
"""

import asyncio
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import replace
from functools import partial
from typing import Any

from bridge.db.database import Database, DatabaseError, Transaction, once_back
from bridge.notify.notice import SHORT_TITLE, Channel, Notice
from sprite.common.limits import TokenBucket
from sprite.common.tasks import Service, TaskSet, owned_task

log = logging.getLogger(__name__)

#: For each sprite: this many notices at once, and one more every ten seconds; further ones are dropped.
AT_ONCE = 6
_PER_SECOND = 0.1
#: Keys remembered for each sprite: more than a sprite repeats by itself (200 lines of chat).
_MOST_KEYS = 500
#: Longest time for a channel with all its retries.
_CHANNEL_SECONDS = 300.0
#: Notices older than this are dropped after a restart.
_FRESH_SECONDS = 3600.0
#: With several bridges: another bridge takes over notices this old, and looks for them this often.
_LEFT_SECONDS, _LOOK_FOR_LEFT_SECONDS = 1.5 * _CHANNEL_SECONDS, 60.0

_KEEP = "INSERT INTO notices VALUES (?, ?, ?, ?, ?, ?, ?, 0, ?) ON CONFLICT (sprite, key) DO NOTHING"
#: One bridge takes them: of two at once, the second sees the new `kept_at`.
_LEFT = "UPDATE notices SET kept_at = ? WHERE is_told = 0 AND kept_at < ? RETURNING *"
_TOLD = "UPDATE notices SET is_told = 1, title = '', body = '' WHERE sprite = ? AND key = ?"
_FORGET = "UPDATE notices SET title = ?, body = '' WHERE sprite = ? AND is_told = 0"
_TRIM = """
DELETE FROM notices WHERE sprite = ? AND key NOT IN
    (SELECT key FROM notices WHERE sprite = ? ORDER BY kept_at DESC, key LIMIT ?)
"""


class Notifier(Service):
    """Deliver notifications: `async with Notifier(...) as notifier:`; call `tell` from anywhere, it never waits.

    `wants_words` and `may_come` look up a person's choice and access. `told` counts notices by kind.
    """

    def __init__(
        self,
        database: Database,
        channels: Sequence[Channel],
        wants_words: Callable[[str], Awaitable[bool]],
        may_come: Callable[[str], Awaitable[bool]],
        on_death: Callable[[], None],
        *,
        shared: bool = False,
    ) -> None:
        self._shared = shared
        self._database = database
        self._channels = channels
        self._wants_words = wants_words
        self._may_come = may_come
        self._on_death = on_death
        self._known: dict[str, OrderedDict[str, None]] = {}
        self._buckets: dict[str, TokenBucket] = {}
        #: Notices waiting for the channels, by sprite and key.
        self._queue: dict[tuple[str, str], Notice] = {}
        self._filled = asyncio.Event()
        self._deliveries = TaskSet()
        self.told: Counter[str] = Counter()

    async def _open(self, stack: AsyncExitStack) -> None:
        rows = await self._database.read(
            lambda db: db.execute("SELECT * FROM notices ORDER BY kept_at, key").fetchall()
        )
        for row in rows:
            self._remember(row["sprite"], row["key"])
        await stack.enter_async_context(self._deliveries)
        if self._shared:
            await stack.enter_async_context(
                owned_task(self._take_over(), name="notices that were left", on_death=self._on_death)
            )
        for row in rows if not self._shared else ():
            if not row["is_told"]:
                self._resume(row)
        await stack.enter_async_context(owned_task(self._run(), name="notices", on_death=self._on_death))

    def knows(self, sprite: str, key: str) -> bool:
        """Return whether the notice was delivered, is queued, or was dropped."""
        return key in self._known.get(sprite, ())

    def tell(self, notice: Notice) -> None:
        """Queue a notice, unless its key is known or its sprite has exceeded the rate."""
        if self.knows(notice.sprite, notice.key):
            return
        self._remember(notice.sprite, notice.key)
        bucket = self._buckets.setdefault(notice.sprite, TokenBucket(_PER_SECOND, AT_ONCE))
        if bucket.wait(1) == 0:
            bucket.take(1)
            self._queue[notice.sprite, notice.key] = notice
            self._filled.set()

    def withdraw(self, person: str, key: str | None = None) -> None:
        """Remove one queued notification, or all of a person who has opened the page."""
        for place, notice in list(self._queue.items()):
            if notice.person == person and key in (None, notice.key):
                del self._queue[place]

    async def forget(self, sprite: str) -> None:
        """Replace the texts of a sprite's pending notifications by a general one. May raise DatabaseError."""
        for place, notice in self._queue.items():
            if notice.sprite == sprite:
                self._queue[place] = replace(notice, title=SHORT_TITLE, body="", is_whole=False)
        await self._database.statement(_FORGET, (SHORT_TITLE, sprite))

    def _remember(self, sprite: str, key: str) -> None:
        keys = self._known.setdefault(sprite, OrderedDict())
        keys[key] = None
        if len(keys) > _MOST_KEYS:
            keys.popitem(last=False)

    async def _take_over(self) -> None:
        """Deliver notices that another bridge stored but did not deliver in time, until cancelled."""
        while True:
            now = time.time()
            try:
                for row in await self._database.statement(_LEFT, (now, now - _LEFT_SECONDS)):
                    self._remember(row["sprite"], row["key"])
                    self._resume(row)
            except DatabaseError as error:
                log.warning("notices of other bridges cannot be looked up (%s)", error.code)
            await asyncio.sleep(_LOOK_FOR_LEFT_SECONDS)

    def _resume(self, row: Any) -> None:
        """Deliver a stored notice that another bridge or an earlier one did not finish. Drop an old one."""
        sprite, key = row["sprite"], row["key"]
        notice = Notice(key, row["kind"], sprite, sprite, row["title"], row["body"], row["at"], row["request_id"])
        is_fresh = abs(time.time() - notice.at) < _FRESH_SECONDS
        work = self._deliver(notice) if is_fresh else self._done(notice)
        self._deliveries.start(work, "notice that was left")

    async def _run(self) -> None:
        while True:
            await self._filled.wait()
            self._filled.clear()
            while self._queue:
                notice = self._queue.pop(next(iter(self._queue)))
                if await self._keep(notice):
                    self._deliveries.start(self._deliver(notice), "notice")

    async def _keep(self, notice: Notice) -> bool:
        """Store a notice, with texts if the person wants them. Return whether this bridge is first and delivers it."""
        try:
            words = await self._wants_words(notice.person)
            title, body = (notice.title, notice.body) if words else ("", "")
            row = (notice.sprite, notice.key, notice.kind, title, body, notice.request_id, notice.at, time.time())

            def write(tx: Transaction) -> bool:
                is_first = tx.execute(_KEEP, row).rowcount == 1
                tx.execute(_TRIM, (notice.sprite, notice.sprite, _MOST_KEYS))
                return is_first

            return await self._database.write(write)
        except DatabaseError as error:
            # Deliver it anyway; it may be repeated if the bridge ends now.
            log.warning("a notice cannot be stored (%s)", error.code, extra={"person": notice.person})
            return True

    async def _deliver(self, notice: Notice) -> None:
        if await once_back(partial(self._may_come, notice.person)):
            await asyncio.gather(*(self._by(channel, notice) for channel in self._channels))
            self.told[notice.kind] += 1
        await self._done(notice)

    async def _by(self, channel: Channel, notice: Notice) -> None:
        name = type(channel).__name__
        try:
            async with asyncio.timeout(_CHANNEL_SECONDS):
                await channel.deliver(notice)
        except TimeoutError:
            log.warning("%s took too long with a notice", name, extra={"person": notice.person})
        except Exception:
            # An error in one channel must not stop the others.
            log.exception("%s failed with a notice", name, extra={"person": notice.person})

    async def _done(self, notice: Notice) -> None:
        with suppress(DatabaseError):
            await once_back(partial(self._database.statement, _TOLD, (notice.sprite, notice.key)))
