"""JSON that programs send: half an emoji, where somebody cut a text, spoils no whole request (pure)."""

from __future__ import annotations

import json
from typing import Any, NoReturn

import msgspec

from sprite.protocol.frames import well_formed


class UnreadableError(ValueError):
    """No JSON, or none that can be read; the words say what is wrong."""


#: Of opening brackets and of commas, text included: far more than any call has that makes sense.
_MOST_BRACKETS, _MOST_COMMAS = 600_000, 2_000_000


def decoded(body: bytes, type_: Any) -> Any:
    """The body as that type. msgspec.ValidationError for another shape, UnreadableError for what is no JSON."""
    # Before anything is built of it.
    if body.count(b"[") + body.count(b"{") > _MOST_BRACKETS or body.count(b",") > _MOST_COMMAS:
        raise UnreadableError("too many members")
    try:
        return msgspec.json.decode(body, type=type_)
    except msgspec.ValidationError:
        raise
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        return msgspec.json.decode(_mended(body, error), type=type_)


def _mended(body: bytes, error: Exception) -> bytes:
    """The body with question marks for halves of surrogate pairs, which JSON can name and no text can hold."""
    try:
        return msgspec.json.encode(well_formed(json.loads(body.decode(), parse_constant=_no_number)))
    except (ValueError, RecursionError, OverflowError) as worse:
        is_deep = isinstance(error, RecursionError) or isinstance(worse, RecursionError)
        raise UnreadableError("nested too deeply" if is_deep else str(error)[:300]) from worse


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
