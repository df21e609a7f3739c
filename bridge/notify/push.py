"""Web Push: send a notice to each browser in which its person turned notifications on.

Push services see only the recipient and the urgency: messages are encrypted (RFC 8291) and signed (RFC 8292). Tries,
waits and response sizes are bounded, so a slow, dead or hostile service affects no other browser.
"""

import asyncio
import base64
import binascii
import errno
import hashlib
import ipaddress
import logging
import socket
import time
import uuid
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from functools import partial
from http import HTTPStatus
from urllib.parse import quote, urlsplit

import aiohttp
import msgspec
from aiohttp import AddrInfoType, TCPConnector
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from py_vapid import Vapid02  # type: ignore[import-untyped]
from py_vapid.utils import b64urlencode  # type: ignore[import-untyped]

from bridge.db.database import (
    ConstraintError,
    Database,
    DatabaseError,
    Transaction,
    in_snapshot,
    kept_secret,
    once_back,
    token_sha256,
)
from bridge.errors import BridgeError
from bridge.notify.notice import SHORT_TITLE, Notice
from sprite.common import own_secrets
from sprite.common.addresses import is_public
from sprite.common.settings import is_loopback
from sprite.common.tasks import Service, jittered

#: Push services accept a day at most.
_TOKEN_SECONDS = 12 * 3600
#: Contact address for push services. The library requires one; a bridge without a public URL has none.
_NOBODY = "mailto:bridge@sprite.invalid"


class VapidKey:
    """Sign requests to push services. `public` is the key for browsers: an uncompressed point, base64url."""

    def __init__(self, private: ec.EllipticCurvePrivateKey, public_url: str | None) -> None:
        self._vapid = Vapid02(private)
        parts = urlsplit(public_url or "")
        is_nameable = parts.scheme == "https" and parts.port is None and "." in (parts.hostname or "")
        self._contact = f"https://{parts.hostname}" if is_nameable else _NOBODY
        point = private.public_key().public_bytes(
            serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint
        )
        self.public: str = b64urlencode(point)

    def headers(self, endpoint: str) -> dict[str, str]:
        """Return the Authorization header for this endpoint, valid for its origin and half a day."""
        parts = urlsplit(endpoint)
        claims = {
            "aud": f"{parts.scheme}://{parts.netloc}",
            "exp": int(time.time()) + _TOKEN_SECONDS,
            "sub": self._contact,
        }
        return dict(self._vapid.sign(claims))


async def kept_key(database: Database, public_url: str | None) -> VapidKey:
    """Return the bridge's key for signing push messages, created at the first start. Raise DatabaseError."""

    def make() -> bytes:
        made = ec.generate_private_key(ec.SECP256R1())
        return made.private_bytes(
            serialization.Encoding.DER, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    der = await kept_secret(database, "push_key", make)
    own_secrets.hold(der)
    private = serialization.load_der_private_key(der, password=None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)  # noqa: S101 - written by nobody else
    return VapidKey(private, public_url)


#: A new subscription replaces the least recently used one above this number.
MAX_PER_PERSON = 10
_MAX_ENDPOINT_CHARS = 2048
_POINT_BYTES, _SECRET_BYTES = 65, 16


class SubscriptionError(BridgeError):
    """A push subscription cannot be used; the message is for whoever sent it."""


class Keys(msgspec.Struct, frozen=True):
    """The browser's encryption keys, base64url: its public key (P-256) and a secret of 16 bytes."""

    p256dh: str
    auth: str


class Subscription(msgspec.Struct, frozen=True):
    """A PushSubscription as browsers send it; other members are ignored."""

    endpoint: str
    keys: Keys


class Subscriptions:
    """Store of subscriptions; `allow_inside` permits services in the bridge's own network, and http on loopback."""

    def __init__(self, database: Database, *, allow_inside: bool = False) -> None:
        self._database = database
        self._allow_inside = allow_inside

    async def add(self, person: str, session: str, subscription: Subscription) -> None:
        """Store a browser's subscription, once per endpoint, for this session. Raise SubscriptionError."""
        self._check(subscription)

        def insert(tx: Transaction) -> None:
            tx.execute(
                "INSERT INTO push_subscriptions (endpoint, person, session_sha256, p256dh, auth, seen_at) "
                "VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (endpoint) DO UPDATE SET person = excluded.person, "
                "session_sha256 = excluded.session_sha256, p256dh = excluded.p256dh, auth = excluded.auth, "
                "seen_at = excluded.seen_at",
                (
                    subscription.endpoint,
                    person,
                    token_sha256(session),
                    subscription.keys.p256dh,
                    subscription.keys.auth,
                    time.time(),
                ),
            )
            tx.execute(
                "DELETE FROM push_subscriptions WHERE person = ? AND endpoint NOT IN (SELECT endpoint FROM "
                "push_subscriptions WHERE person = ? ORDER BY seen_at DESC, endpoint LIMIT ?)",
                (person, person, MAX_PER_PERSON),
            )

        try:
            await self._database.write(insert)
        except ConstraintError:
            raise SubscriptionError("This browser was logged out meanwhile. Log in again.") from None

    async def remove(self, person: str, endpoint: str) -> None:
        """Delete a person's subscription, if it exists."""
        await self._database.statement(
            "DELETE FROM push_subscriptions WHERE person = ? AND endpoint = ?", (person, endpoint)
        )

    async def drop(self, subscription: Subscription) -> None:
        """Delete a subscription that its push service reports as gone, unless the browser has renewed it."""
        await self._database.statement(
            "DELETE FROM push_subscriptions WHERE endpoint = ? AND auth = ?",
            (subscription.endpoint, subscription.keys.auth),
        )

    @in_snapshot
    def of(self, db: Transaction, person: str) -> list[Subscription]:
        """Return a person's subscriptions of browsers that are still logged in."""
        rows = db.execute(
            "SELECT endpoint, p256dh, auth FROM push_subscriptions JOIN sessions ON id_sha256 = session_sha256 "
            "WHERE push_subscriptions.person = ? AND expires_at > ? ORDER BY seen_at DESC",
            (person, time.time()),
        )
        return [Subscription(row["endpoint"], Keys(row["p256dh"], row["auth"])) for row in rows]

    def _check(self, subscription: Subscription) -> None:
        endpoint, keys = subscription.endpoint, subscription.keys
        try:
            parts = urlsplit(endpoint)
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        is_plain = endpoint.isascii() and endpoint.isprintable() and not set(endpoint) & {" ", "\\", "#"}
        if len(endpoint) > _MAX_ENDPOINT_CHARS or not is_plain or not host or port == 0 or "@" in parts.netloc:
            raise SubscriptionError("This is not the address of a push service.")
        if parts.scheme != "https" and not (self._allow_inside and parts.scheme == "http" and is_loopback(host)):
            raise SubscriptionError("The address of a push service must use https.")
        if ":" in host:
            raise SubscriptionError("The address of a push service must have a host name, not an IPv6 address.")
        try:
            point = _decoded(keys.p256dh, _POINT_BYTES)
            ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), point)
            _decoded(keys.auth, _SECRET_BYTES)
        except (ValueError, binascii.Error):
            raise SubscriptionError(
                "The encryption keys of the subscription are invalid. Turn notifications off in this browser and "
                "on again."
            ) from None


def _decoded(text: str, size: int) -> bytes:
    """Decode base64url without padding to `size` bytes. Raise ValueError for anything else."""
    if not text.isascii() or len(text) > 2 * size:
        raise ValueError("not base64url")
    data = base64.b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4), altchars=b"-_", validate=True)
    if len(data) != size:
        raise ValueError("of another size")
    return data


def _socket_to_outside(info: AddrInfoType) -> socket.socket:
    family, kind, protocol, _, address = info
    if not is_public(ipaddress.ip_address(address[0])):
        raise OSError(errno.EACCES, "this address is not public")
    return socket.socket(family, kind, protocol)


log = logging.getLogger(__name__)

#: Push services accept 4,096 bytes including the encryption overhead; some browsers' accept fewer.
MAX_PAYLOAD_BYTES = 3000
#: A question stays open for ten minutes; other notices stay useful for a day.
_QUESTION_SECONDS, _NEWS_SECONDS = 600, 24 * 3600
_TRY_SECONDS = 10.0
_TRIES = 4
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 1.0, 60.0
_GONE = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.GONE})
_BUSY = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS})
_AT_ONCE = 8


class Payload(msgspec.Struct, frozen=True, omit_defaults=True):
    """A notification as sent to the page's service worker; `url` is the target of a click, `at` in Unix seconds.

    It offers "no" to the question `request_id`, "yes" if `allow`, and to raise today's limit and go on if `raises`.
    """

    key: str
    kind: str
    title: str
    body: str
    at: float
    url: str
    request_id: str | None = None
    allow: bool = False
    raises: bool = False


def payload_of(notice: Notice, *, words: bool) -> Payload:
    """Return the content of a push notification. If it hides its subject, it has no "yes" button."""
    place = "/"
    if notice.request_id is not None:
        place = f"/#question={quote(notice.request_id, safe='')}"
    elif notice.kind == "ended" and _is_id(notice.key):
        place = f"/#mission={notice.key}"
    if not words:
        return Payload(notice.key, notice.kind, SHORT_TITLE, "", notice.at, place)
    return Payload(
        key=notice.key,
        kind=notice.kind,
        title=notice.title,
        body=notice.body,
        at=notice.at,
        url=place,
        request_id=notice.request_id,
        allow=notice.is_whole,
        raises=notice.raises,
    )


def encoded(payload: Payload) -> bytes:
    """Return the payload as JSON of at most MAX_PAYLOAD_BYTES; a longer body is cut and ends with an ellipsis."""
    found = msgspec.json.encode(payload)
    body = payload.body
    while len(found) > MAX_PAYLOAD_BYTES and body:
        # A character has at least one byte, so at most this many must go.
        body = body[: -max(1, (len(found) - MAX_PAYLOAD_BYTES) // 6)]
        found = msgspec.json.encode(msgspec.structs.replace(payload, body=body.rstrip() + "…", allow=False))
    return found


def _is_id(key: str) -> bool:
    """Return whether a key is the id of a turn; other keys stand for several events."""
    try:
        uuid.UUID(key)
    except ValueError:
        return False
    return True


class Push(Service):
    """Send push notifications, also to services in the bridge's own network if `allow_inside`; a Channel."""

    def __init__(
        self,
        key: VapidKey,
        subscriptions: Subscriptions,
        wants_words: Callable[[str], Awaitable[bool]],
        *,
        allow_inside: bool = False,
    ) -> None:
        self._key = key
        self._subscriptions = subscriptions
        self._wants_words = wants_words
        self._allow_inside = allow_inside
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._http: aiohttp.ClientSession

    async def _open(self, stack: AsyncExitStack) -> None:
        # For any address that is not public, it raises the OSError of an unreachable network.
        connector = TCPConnector(socket_factory=None if self._allow_inside else _socket_to_outside)
        timeout = aiohttp.ClientTimeout(total=_TRY_SECONDS)
        session = aiohttp.ClientSession(connector=connector, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar())
        self._http = await stack.enter_async_context(session)

    async def deliver(self, notice: Notice) -> None:
        """Send the notice to all of the person's browsers at once; see Channel."""
        try:
            subscriptions = await once_back(partial(self._subscriptions.of, notice.person))
            words = await once_back(partial(self._wants_words, notice.person))
            body = encoded(payload_of(notice, words=words))
        except DatabaseError as error:
            log.warning("the database cannot be read for a push (%s)", error.code)
            return
        await asyncio.gather(*(self._send(each, body, notice.key, notice.kind) for each in subscriptions))

    async def try_out(self, subscription: Subscription, at: float) -> bool:
        """Send a test notification to one browser; return whether its service accepted it."""
        payload = Payload("test", "test", "Notifications work", "Sprite can reach you in this browser.", at, "/")
        return await self._send(subscription, encoded(payload), "test", "test")

    async def _send(self, subscription: Subscription, body: bytes, key: str, kind: str) -> bool:
        """Send a message to a browser. Return whether its push service accepted it; log a failure and the host."""
        host = urlsplit(subscription.endpoint).hostname
        try:
            async with self._slots:
                outcome = await self._with_patience(subscription, body, _headers(key, kind))
            if outcome in _GONE:
                await self._subscriptions.drop(subscription)
        except Exception:
            # Channel boundary: an error of one browser must not stop the others.
            log.exception("a push to %s failed", host)
            return False
        is_taken = isinstance(outcome, int) and HTTPStatus.OK <= outcome < HTTPStatus.MULTIPLE_CHOICES
        if outcome in _GONE:
            log.info("a push subscription at %s is gone (%s) and was dropped", host, outcome)
        elif not is_taken:
            log.warning("a push to %s was given up: %s", host, outcome)
        return is_taken

    async def _with_patience(self, subscription: Subscription, body: bytes, headers: dict[str, str]) -> int | str:
        """Post a message, with retries. Return the final HTTP status, or a description of the failure."""
        outcome: int | str = ""
        for number in range(_TRIES):
            outcome, asked_wait = await self._once(subscription, body, headers)
            if isinstance(outcome, int) and outcome not in _BUSY and outcome < HTTPStatus.INTERNAL_SERVER_ERROR:
                return outcome
            if number + 1 < _TRIES:
                backoff = jittered(_FIRST_WAIT_SECONDS * 4**number)
                await asyncio.sleep(min(_LONGEST_WAIT_SECONDS, max(backoff, asked_wait)))
        return outcome

    async def _once(self, subscription: Subscription, body: bytes, headers: dict[str, str]) -> tuple[int | str, float]:
        """Post a message once; return the status or failure, and the delay in seconds that the service asks for."""
        # Late import: it loads a second HTTP client that is not used here.
        from pywebpush import WebPusher  # type: ignore[import-untyped]

        keys = {"p256dh": subscription.keys.p256dh, "auth": subscription.keys.auth}
        secret = WebPusher({"endpoint": subscription.endpoint, "keys": keys}).encode(body)
        signed = {**headers, **self._key.headers(subscription.endpoint)}
        try:
            async with self._http.post(
                subscription.endpoint,
                data=secret["body"],
                headers=signed,
                # A redirect could point anywhere; push services do not use them.
                allow_redirects=False,
            ) as response:
                return response.status, _seconds(response.headers.get("Retry-After", ""))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            # The error text would contain the endpoint.
            return type(error).__name__, 0.0


def _headers(key: str, kind: str) -> dict[str, str]:
    # Pending messages with one topic are merged (RFC 8030): a repeat replaces the first.
    topic = base64.urlsafe_b64encode(hashlib.sha256(key.encode()).digest()[:18]).decode()
    is_question = kind == "permission"
    return {
        "TTL": str(_QUESTION_SECONDS if is_question else _NEWS_SECONDS),
        "Urgency": "high" if is_question else "normal",
        "Topic": topic,
        "Content-Encoding": "aes128gcm",
        "Content-Type": "application/octet-stream",
    }


def _seconds(retry_after: str) -> float:
    """Return a Retry-After delay in seconds; 0 if it is missing or a date."""
    return float(retry_after) if retry_after.isascii() and retry_after.isdigit() else 0.0
