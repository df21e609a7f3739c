"""The bridge's key for push services (VAPID, RFC 8292). Owns the table `push_key`.

It is created once and kept: browsers bind their subscriptions to it, and those for another key cannot be used.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_der_private_key,
)
from py_vapid import Vapid02  # type: ignore[import-untyped]
from py_vapid.utils import b64urlencode  # type: ignore[import-untyped]

from sprite.common import own_secrets

if TYPE_CHECKING:
    from bridge.database import Database, Transaction

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
        point = private.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
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
    """Return the bridge's key, created at the first start. Raise DatabaseError."""

    def take(tx: Transaction) -> bytes:
        row = tx.execute("SELECT private_der FROM push_key").fetchone()
        if row is not None:
            return bytes(row["private_der"])
        made = ec.generate_private_key(ec.SECP256R1())
        der = made.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
        tx.execute("INSERT INTO push_key (private_der) VALUES (?)", (der,))
        return der

    der = await database.write(take)
    own_secrets.hold(der)
    private = load_der_private_key(der, password=None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)  # noqa: S101 - written by nobody else
    return VapidKey(private, public_url)
