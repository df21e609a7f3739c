"""Signs what a webhook is sent, as the Standard Webhooks have it (https://www.standardwebhooks.com): pure.

The signature is HMAC-SHA256 over `id.timestamp.body`, so that a receiver can refuse what is forged, changed or old.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets

PREFIX = "whsec_"
_KEY_BYTES = 32
_SHORTEST, _LONGEST = 24, 64


def new_key() -> bytes:
    """A random key."""
    return secrets.token_bytes(_KEY_BYTES)


def shown(key: bytes) -> str:
    """A key as receivers' libraries take it."""
    return PREFIX + base64.b64encode(key).decode()


def read_key(text: str) -> bytes:
    """A key from how it is shown; ValueError where it is none."""
    if not text.startswith(PREFIX):
        raise ValueError("no prefix")
    try:
        key = base64.b64decode(text.removeprefix(PREFIX), validate=True)
    except binascii.Error as error:
        raise ValueError("no base64") from error
    if not _SHORTEST <= len(key) <= _LONGEST:
        raise ValueError("too short or too long")
    return key


def headers(key: bytes, message_id: str, at: int, body: bytes) -> dict[str, str]:
    """The three headers that go with a body; `at` in Unix seconds."""
    digest = hmac.digest(key, b"%s.%d.%s" % (message_id.encode(), at, body), hashlib.sha256)
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(at),
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }
