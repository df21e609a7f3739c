"""The operator's webhook: send every notice as signed JSON to one address, retrying for an hour.

Pending messages survive a restart. Tries and pending messages are bounded, so a receiver that hangs, redirects or
never ends its answer delays no other.
"""

import asyncio
import base64
import hashlib
import hmac
import logging
import secrets
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus

import aiohttp
import msgspec

from bridge.db.database import Database, DatabaseError, Transaction, in_transaction, kept_secret, once_back
from bridge.notify.notice import SHORT_TITLE, Notice, NoticeKind
from sprite.common.tasks import Service, TaskSet, owned_task

PREFIX = "whsec_"
_KEY_BYTES = 32


def new_key() -> bytes:
    """Return a random signing key."""
    return secrets.token_bytes(_KEY_BYTES)


def shown(key: bytes) -> str:
    """Return a signing key in the text form that receivers' libraries accept."""
    return PREFIX + base64.b64encode(key).decode()


def headers(key: bytes, message_id: str, at: int, body: bytes) -> dict[str, str]:
    """Return the webhook's three headers for a body; `at` is in Unix seconds."""
    digest = hmac.digest(key, b"%s.%d.%s" % (message_id.encode(), at, body), hashlib.sha256)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(at),
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }


#: Above this number the oldest are dropped, if a receiver is down for long.
MOST_WAITING = 1000
#: Delays in seconds after each failed try: five tries within an hour.
PAUSES = (30.0, 300.0, 900.0, 2100.0)
_DUE = """
SELECT id, body, tries FROM webhook_outbox WHERE next_at <= ? OR next_at > ? ORDER BY next_at, kept_at LIMIT ?
"""
#: With two bridges at once, the second sees that the first one has taken them.
_TAKE = """
UPDATE webhook_outbox SET next_at = ? WHERE (next_at <= ? OR next_at > ?) AND id IN (
    SELECT id FROM webhook_outbox WHERE next_at <= ? OR next_at > ? ORDER BY next_at, kept_at LIMIT ?
) RETURNING id, body, tries
"""
#: Longer than one try: after this another bridge takes messages that were not finished.
_TAKEN_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Waiting:
    """A webhook message that is due, and its number of tries so far."""

    id: str
    body: bytes
    tries: int


class Outbox:
    """Store webhook messages until they are delivered or given up. Every method may raise DatabaseError.

    If it is `shared` by several bridges, each due message is given to one of them.
    """

    def __init__(self, database: Database, pauses: tuple[float, ...] = PAUSES, *, shared: bool = False) -> None:
        self._database = database
        #: If set, `due` returns a message once, otherwise on every call.
        self.is_shared = shared
        self._pauses = pauses

    async def key(self) -> bytes:
        """Return the signing key, created on first use."""
        return await kept_secret(self._database, "webhook_key", new_key)

    @in_transaction
    def add(self, tx: Transaction, message_id: str, body: bytes) -> None:
        """Store a message, unless its id is already pending."""
        now = time.time()
        tx.execute(
            "INSERT INTO webhook_outbox VALUES (?, ?, 0, ?, ?) ON CONFLICT (id) DO NOTHING",
            (message_id, body, now, now),
        )
        tx.execute(
            "DELETE FROM webhook_outbox WHERE id NOT IN "
            "(SELECT id FROM webhook_outbox ORDER BY kept_at DESC, id LIMIT ?)",
            (MOST_WAITING,),
        )

    @in_transaction
    def forget(self, tx: Transaction, sprite: str) -> None:
        """Remove the texts of a sprite's pending messages; they are delivered without."""
        for row in tx.execute("SELECT id, body FROM webhook_outbox").fetchall():
            message = msgspec.json.decode(bytes(row["body"]), type=Message)
            if message.sprite == sprite:
                short = msgspec.structs.replace(message, title=SHORT_TITLE, body="")
                tx.execute("UPDATE webhook_outbox SET body = ? WHERE id = ?", (msgspec.json.encode(short), row["id"]))

    async def due(self, most: int) -> list[Waiting]:
        """Return the messages that are due, the longest due first.

        Messages scheduled too far ahead are included, because a clock that was set back would delay them for ever.
        """
        now = time.time()
        bounds = (now, now + max(self._pauses))
        if self.is_shared:
            rows = await self._database.statement(_TAKE, (now + _TAKEN_SECONDS, *bounds, *bounds, most))
        else:
            rows = await self._database.read(lambda db: db.execute(_DUE, (*bounds, most)).fetchall())
        return [Waiting(row["id"], bytes(row["body"]), row["tries"]) for row in rows]

    async def next_at(self) -> float | None:
        """Return the time of the next due message in Unix seconds, None if there is none."""
        row = await self._database.read(
            lambda db: db.execute("SELECT min(next_at) AS at FROM webhook_outbox").fetchone()
        )
        return None if row["at"] is None else float(row["at"])

    async def done(self, message_id: str) -> None:
        """Delete a message."""
        await self._database.statement("DELETE FROM webhook_outbox WHERE id = ?", (message_id,))

    async def failed(self, message: Waiting) -> bool:
        """Reschedule a message; return False if that was its last try and it was deleted."""
        if message.tries >= len(self._pauses):
            await self.done(message.id)
            return False
        again_at = time.time() + self._pauses[message.tries]
        await self._database.statement(
            "UPDATE webhook_outbox SET tries = ?, next_at = ? WHERE id = ?", (message.tries + 1, again_at, message.id)
        )
        return True


log = logging.getLogger(__name__)

_TRY_SECONDS = 10.0
_AT_ONCE = 4
#: Even if the next try is far away: clocks jump.
_LOOK_SECONDS = 20.0
_DISK_SECONDS = 5.0
#: Message ids are derived from the event, so that a receiver can deduplicate.
_IDS = uuid.UUID("5d8f2f0e-1c8b-4a54-9a3d-3c6f9b1f6f53")


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """The JSON body; `at` in Unix seconds. `request_id` is the question of a `permission`."""

    id: str
    kind: NoticeKind
    person: str
    sprite: str
    title: str
    body: str
    at: float
    request_id: str | None = None


def message_of(notice: Notice, *, words: bool) -> Message:
    """Return the message for a notice; without `words` it does not reveal the subject."""
    return Message(
        str(uuid.uuid5(_IDS, f"{notice.sprite}/{notice.key}")),
        notice.kind,
        notice.person,
        notice.sprite,
        notice.title if words else SHORT_TITLE,
        notice.body if words else "",
        notice.at,
        notice.request_id,
    )


class Webhook(Service):
    """Post notifications to a webhook: `async with Webhook(...) as webhook:`; a Channel.

    `wants_words` returns whether a person wants full texts. `sent` counts tries by outcome.
    """

    def __init__(
        self,
        url: str,
        key: bytes,
        outbox: Outbox,
        wants_words: Callable[[str], Awaitable[bool]],
        on_death: Callable[[], None],
        *,
        try_seconds: float = _TRY_SECONDS,
    ) -> None:
        self._url = url
        self._key = key
        self._outbox = outbox
        self._wants_words = wants_words
        self._on_death = on_death
        self._timeout = aiohttp.ClientTimeout(total=try_seconds)
        self._http: aiohttp.ClientSession
        self._filled = asyncio.Event()
        self._sending: dict[str, asyncio.Task[None]] = {}
        self._tries = TaskSet()
        self._is_failing = False
        self.sent: Counter[str] = Counter()

    async def _open(self, stack: AsyncExitStack) -> None:
        self._http = await stack.enter_async_context(
            aiohttp.ClientSession(timeout=self._timeout, cookie_jar=aiohttp.DummyCookieJar())
        )
        await stack.enter_async_context(self._tries)
        await stack.enter_async_context(owned_task(self._run(), name="webhook", on_death=self._on_death))

    async def deliver(self, notice: Notice) -> None:
        """Store the message; it is posted now and retried later. See Channel."""
        try:
            message = message_of(notice, words=await once_back(partial(self._wants_words, notice.person)))
            await once_back(partial(self._outbox.add, message.id, msgspec.json.encode(message)))
        except DatabaseError as error:
            log.warning("a message for the webhook cannot be kept (%s)", error.code)
        self._filled.set()

    async def _run(self) -> None:
        while True:
            self._filled.clear()
            try:
                wait = await self._start_due()
            except DatabaseError as error:
                log.warning("the webhook's messages cannot be read (%s)", error.code)
                wait = _DISK_SECONDS
            with suppress(TimeoutError):
                async with asyncio.timeout(wait):
                    await self._filled.wait()

    async def _start_due(self) -> float:
        """Start posting due messages, a few at a time; return the longest wait in seconds."""
        most = _AT_ONCE - len(self._sending) if self._outbox.is_shared else _AT_ONCE + len(self._sending)
        # A post may end while its row is read: it must not be posted again from the old row.
        underway = set(self._sending)
        for message in await self._outbox.due(most) if most else ():
            if len(self._sending) >= _AT_ONCE:
                # A post that ends wakes the loop.
                return _LOOK_SECONDS
            if message.id not in underway:
                self._sending[message.id] = self._tries.start(self._post(message), "post to the webhook")
        next_at = await self._outbox.next_at()
        if next_at is None or self._sending:
            return _LOOK_SECONDS
        return min(max(next_at - time.time(), 0.0), _LOOK_SECONDS)

    async def _post(self, message: Waiting) -> None:
        try:
            failure = await self._try(message)
            self.sent["failed" if failure else "taken"] += 1
            if not failure:
                self._is_failing = False
                await self._outbox.done(message.id)
                return
            if not self._is_failing:
                log.warning("the webhook did not take a message (%s)", failure)
            self._is_failing = True
            if not await self._outbox.failed(message):
                log.warning("a message for the webhook is given up (%s)", failure)
        except DatabaseError as error:
            # It is posted again; its id lets the receiver deduplicate.
            log.warning("the webhook's messages cannot be written (%s)", error.code)
            await asyncio.sleep(_DISK_SECONDS)
        finally:
            del self._sending[message.id]
            self._filled.set()

    async def _try(self, message: Waiting) -> str:
        """Post a message once; return "" on success, else the reason without any of the receiver's text or address."""
        signed = headers(self._key, message.id, int(time.time()), message.body)
        try:
            async with self._http.post(
                self._url,
                data=message.body,
                headers={**signed, "Content-Type": "application/json", "User-Agent": "Sprite"},
                allow_redirects=False,
            ) as response:
                # The status is enough. A body may never end.
                response.close()
                is_taken = HTTPStatus.OK <= response.status < HTTPStatus.MULTIPLE_CHOICES
                return "" if is_taken else f"HTTP {response.status}"
        except TimeoutError:
            return "no answer in time"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return type(error).__name__
