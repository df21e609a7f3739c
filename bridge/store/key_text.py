"""Text forms of keys (pure): those of the store in base64, each with an optional name before it, and the webhook's."""

from __future__ import annotations

import base64
import binascii

KEY_BYTES = 32
#: As in Standard Webhooks (https://www.standardwebhooks.com).
WEBHOOK_PREFIX = "whsec_"
_SHORTEST_BYTES, _LONGEST_BYTES = 24, 64


def read_keys(text: str) -> tuple[bytes, ...]:
    """Parse keys: `KEY` or `NAME:KEY`, separated by white space or commas, the one in use first.

    Names are only for readers; a key is identified by its value. Raise ValueError for invalid base64 or another
    length.
    """
    return tuple(_key(word) for word in text.replace(",", " ").split())


def write_keys(keys: tuple[bytes, ...]) -> str:
    """Return the text that `read_keys` parses: a key a line."""
    return "".join(f"{base64.b64encode(key).decode()}\n" for key in keys)


def read_webhook_key(text: str) -> bytes:
    """Parse a webhook's signing key from its text form. Raise ValueError if it is invalid."""
    if not text.startswith(WEBHOOK_PREFIX):
        raise ValueError("no prefix")
    try:
        key = base64.b64decode(text.removeprefix(WEBHOOK_PREFIX), validate=True)
    except binascii.Error as error:
        raise ValueError("no base64") from error
    if not _SHORTEST_BYTES <= len(key) <= _LONGEST_BYTES:
        raise ValueError("too short or too long")
    return key


def _key(word: str) -> bytes:
    key = base64.b64decode(word.rpartition(":")[2], validate=True)
    if len(key) != KEY_BYTES:
        raise ValueError
    return key
