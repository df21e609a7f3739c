"""This process's own keys and tokens, recognised by value (also in base64 and hexadecimal), and held in memory only."""

from __future__ import annotations

import base64
from collections import deque
from collections.abc import Iterator

KIND = "own-secret"
#: Shorter values such as "offline" are placeholders, not keys.
_SHORTEST = 12
#: Login links and sessions are created all the time, and the oldest have expired.
_MOST_PASSING = 200

_held: set[str] = set()
_passing: deque[str] = deque(maxlen=_MOST_PASSING)


def hold(*secrets: str | bytes | None) -> None:
    """Remember these secrets for redaction from here on; None and short values are ignored."""
    _held.update(spelling for secret in secrets for spelling in _spellings(secret))


def hold_passing(secret: str) -> None:
    """Remember a short-lived secret for redaction; only the newest few hundred are remembered."""
    _passing.append(secret)


def clear() -> None:
    """Forget all secrets, so that the process is as at its start."""
    _held.clear()
    _passing.clear()


def without(text: str) -> str:
    """Return the text with a mark instead of each secret."""
    for secret in (*_held, *_passing):
        if secret in text:
            text = text.replace(secret, f"[redacted:{KIND}]")
    return text


def spans(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield the spans of secrets in the text: (start, end, kind)."""
    for secret in (*_held, *_passing):
        at = text.find(secret)
        while at >= 0:
            yield at, at + len(secret), KIND
            at = text.find(secret, at + len(secret))


def _spellings(secret: str | bytes | None) -> list[str]:
    if isinstance(secret, bytes):
        encoded = (base64.b64encode(secret).decode(), base64.urlsafe_b64encode(secret).decode(), secret.hex())
        # Without padding, because the padded spelling contains the unpadded one.
        found = [spelling.rstrip("=") for spelling in encoded]
    else:
        found = [secret or ""]
    return [spelling for spelling in found if len(spelling) >= _SHORTEST]
