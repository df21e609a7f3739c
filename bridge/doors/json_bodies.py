"""JSON from programs, tolerant of lone surrogates from text that was cut inside an emoji (pure)."""

from __future__ import annotations

import json
from typing import Any, NoReturn

import msgspec

from sprite.protocol.frames import well_formed


class UnreadableError(ValueError):
    """Invalid or excessive JSON; the message says what is wrong."""


#: Limits for brackets and commas, including those in text: far above any reasonable call.
_MOST_BRACKETS, _MOST_COMMAS = 600_000, 2_000_000


def decoded(body: bytes, type_: Any) -> Any:
    """Decode a body. Raises msgspec.ValidationError for a wrong shape, UnreadableError for invalid JSON."""
    # Checked first, before any objects are built.
    if body.count(b"[") + body.count(b"{") > _MOST_BRACKETS or body.count(b",") > _MOST_COMMAS:
        raise UnreadableError("too many members")
    try:
        return msgspec.json.decode(body, type=type_)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return msgspec.json.decode(_mended(body, error), type=type_)


def _mended(body: bytes, error: Exception) -> bytes:
    """Return the body with question marks for lone surrogates, which JSON can express but UTF-8 cannot."""
    try:
        return msgspec.json.encode(well_formed(json.loads(body.decode(), parse_constant=_no_number)))
    except (ValueError, RecursionError, OverflowError) as worse:
        is_deep = isinstance(error, RecursionError) or isinstance(worse, RecursionError)
        raise UnreadableError("nested too deeply" if is_deep else str(error)[:300]) from worse


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
