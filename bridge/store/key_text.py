"""Text form of the store's keys (pure): base64, each with an optional name before it."""

from __future__ import annotations

import base64

KEY_BYTES = 32


def read_keys(text: str) -> tuple[bytes, ...]:
    """Parse keys: `KEY` or `NAME:KEY`, separated by white space or commas, the one in use first.

    Names are only for readers; a key is identified by its value. Raise ValueError for invalid base64 or another
    length.
    """
    return tuple(_key(word) for word in text.replace(",", " ").split())


def write_keys(keys: tuple[bytes, ...]) -> str:
    """Return the text that `read_keys` parses: a key a line."""
    return "".join(f"{base64.b64encode(key).decode()}\n" for key in keys)


def _key(word: str) -> bytes:
    key = base64.b64decode(word.rpartition(":")[2], validate=True)
    if len(key) != KEY_BYTES:
        raise ValueError
    return key
