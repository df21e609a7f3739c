"""Sign webhook messages as in Standard Webhooks (https://www.standardwebhooks.com): pure.

The signature is HMAC-SHA256 over `id.timestamp.body`, so a receiver can reject forged, changed or old messages.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets

PREFIX = "whsec_"
_KEY_BYTES = 32


def new_key() -> bytes:
    """Return a random key."""
    return secrets.token_bytes(_KEY_BYTES)


def shown(key: bytes) -> str:
    """Return a key in the text form that receivers' libraries accept."""
    return PREFIX + base64.b64encode(key).decode()


def headers(key: bytes, message_id: str, at: int, body: bytes) -> dict[str, str]:
    """Return the three headers for a body; `at` is in Unix seconds."""
    digest = hmac.digest(key, b"%s.%d.%s" % (message_id.encode(), at, body), hashlib.sha256)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(at),
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }
