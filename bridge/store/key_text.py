"""The keys of the store as people write them (pure): base64, each with a name before it if one likes."""

from __future__ import annotations

import base64

KEY_BYTES = 32


def read_keys(text: str) -> tuple[bytes, ...]:
    """The keys of a text: `KEY` or `NAME:KEY`, with white space or commas between, the one in use first.

    A name is for who reads it; a key is known by itself. ValueError where one is no base64 of 32 bytes.
    """
    return tuple(_key(word) for word in text.replace(",", " ").split())


def write_keys(keys: tuple[bytes, ...]) -> str:
    """The text that `read_keys` reads: a key a line."""
    return "".join(f"{base64.b64encode(key).decode()}\n" for key in keys)


def _key(word: str) -> bytes:
    key = base64.b64decode(word.rpartition(":")[2], validate=True)
    if len(key) != KEY_BYTES:
        raise ValueError
    return key
