"""This process's own keys and tokens, known by value: most have no shape by which a rule could know them.

They are in memory only, and for as long as the process runs.
"""

from __future__ import annotations

from collections.abc import Iterator

KIND = "own-secret"
#: "offline" and its like, given where a key is asked for, are none.
_SHORTEST = 16

_held: set[str] = set()


def hold(*secrets: str | None) -> None:
    """Keep these out of everything that is written down from here on; None and short ones are no secrets."""
    _held.update(secret for secret in secrets if secret and len(secret) >= _SHORTEST)


def spans(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield where they stand: (start, end, kind)."""
    for secret in _held:
        at = text.find(secret)
        while at >= 0:
            yield at, at + len(secret), KIND
            at = text.find(secret, at + len(secret))


def without(text: str) -> str:
    """Return the text with a mark instead of each."""
    for secret in _held:
        text = text.replace(secret, f"[redacted:{KIND}]")
    return text
