"""Browsers with notifications, each with the endpoint of its push service. Owns `push_subscriptions`.

A subscription belongs to the session of its browser and ends with it: logged out, revoked, or expired. An endpoint is
a secret (whoever has it and the bridge's key can send to the browser), so it is never logged.
"""

from __future__ import annotations

import base64
import binascii
import time
from urllib.parse import urlsplit

import msgspec
from cryptography.hazmat.primitives.asymmetric import ec

from bridge.config import is_loopback
from bridge.database import ConstraintError, Database, Transaction, in_snapshot, token_sha256
from bridge.errors import BridgeError

#: A new subscription replaces the least recently used one above this number.
MAX_PER_PERSON = 10
_MAX_ENDPOINT_CHARS = 2048
_POINT_BYTES, _SECRET_BYTES = 65, 16


class SubscriptionError(BridgeError):
    """A subscription cannot be used, in words for whoever sent it."""


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
            raise SubscriptionError("A push service is reached by https only.")
        if ":" in host:
            raise SubscriptionError("A push service has a name, not an IPv6 address.")
        try:
            point = _decoded(keys.p256dh, _POINT_BYTES)
            ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), point)
            _decoded(keys.auth, _SECRET_BYTES)
        except (ValueError, binascii.Error):
            raise SubscriptionError("The subscription's keys are not as a browser makes them.") from None


def _decoded(text: str, size: int) -> bytes:
    """Decode base64url without padding to `size` bytes. Raise ValueError for anything else."""
    if not text.isascii() or len(text) > 2 * size:
        raise ValueError("not base64url")
    data = base64.b64decode(text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4), altchars=b"-_", validate=True)
    if len(data) != size:
        raise ValueError("of another size")
    return data
