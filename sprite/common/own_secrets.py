"""This process's own keys and tokens, known by value: most have no shape by which a rule could know them.

They stay in memory only. A key of bytes is known in base64, base64url and hexadecimal digits.
"""

from __future__ import annotations

import base64
from collections import OrderedDict
from collections.abc import Iterator

KIND = "own-secret"
#: "offline" and its like, given where a key is asked for, are none.
_SHORTEST = 12
#: Login links and sessions are made all the time, and the oldest have run out.
_MOST_PASSING = 200

_held: set[str] = set()
_passing: OrderedDict[str, None] = OrderedDict()


def hold(*secrets: str | bytes | None) -> None:
    """Keep these out from here on; None and short ones are no secrets."""
    _held.update(spelling for secret in secrets for spelling in _spellings(secret))


def hold_passing(secret: str) -> None:
    """Keep one out that others follow soon: the newest few hundred are known."""
    _passing[secret] = None
    if len(_passing) > _MOST_PASSING:
        _passing.popitem(last=False)


def without(text: str) -> str:
    """Return the text with a mark instead of each secret."""
    for secret in (*_held, *_passing):
        if secret in text:
            text = text.replace(secret, f"[redacted:{KIND}]")
    return text


def spans(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield where they stand in the text: (start, end, kind)."""
    for secret in (*_held, *_passing):
        at = text.find(secret)
        while at >= 0:
            yield at, at + len(secret), KIND
            at = text.find(secret, at + len(secret))


def _spellings(secret: str | bytes | None) -> list[str]:
    if isinstance(secret, bytes):
        encoded = (base64.b64encode(secret).decode(), base64.urlsafe_b64encode(secret).decode(), secret.hex())
        # Padding is left out: the spelling with it has the one without it inside.
        found = [spelling.rstrip("=") for spelling in encoded]
    else:
        found = [secret or ""]
    return [spelling for spelling in found if len(spelling) >= _SHORTEST]
