"""Checks of values from outside (pure): reasons for a refusal, and whether JSON passes unchanged."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, get_args

import msgspec

from sprite.errors import PeerError
from sprite.protocol.canvas import OUT_OF_BOUNDS
from sprite.protocol.memory import LARGEST_ID, RowId

#: (code, words) for required fields with a meaning; other fields are just reported as missing.
_MISSING = {
    ("canvas_interaction", "name"): ("bad_request", "A stack needs a name."),
    ("canvas_interaction", "stack_id"): ("not_found", "There is no such stack."),
    ("canvas_interaction", "card_id"): ("not_found", "There is no such card."),
}


def refusal(kind: str, union: Any, payload: bytes, reason: str) -> PeerError | None:
    """Return the error for a message of `kind`, of a tagged `union`; None if the decoder's `reason` is another."""
    try:
        given = msgspec.json.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(given, dict):
        return None
    for member in get_args(union):
        config = member.__struct_config__
        if given.get(config.tag_field) == config.tag:
            faults = dict(_faults(kind, member, given))
            # The reason ends with "required field `name`" or "at `$.name`"; for a number in a place, "at `$.name.x`".
            if any(reason.endswith((f" `{name}`", f"`$.{name}`")) for name in faults):
                return next(iter(faults.values()))
    return None


def _faults(kind: str, member: type[msgspec.Struct], given: dict[str, Any]) -> Iterator[tuple[str, PeerError]]:
    """Yield the invalid fields in the order of the type, each with its error."""
    for field in msgspec.structs.fields(member):
        value = given.get(field.encode_name)
        numbers_a_row = RowId in (field.type, *get_args(field.type))
        if value is None and field.required:
            code, words = _MISSING.get((kind, field.name), ("bad_payload", f"{field.name!r} is missing."))
            yield field.name, PeerError(words, code=code)
        # A boolean is not a number here, although Python's bool is an int.
        elif numbers_a_row and type(value) is int and not 0 <= value <= LARGEST_ID:
            yield field.name, PeerError(f"There is no number {value}.", code="not_found")
        for shape, words in OUT_OF_BOUNDS.items():
            if shape in get_args(field.type) and isinstance(value, dict):
                parts = (part for part in msgspec.structs.fields(shape) if not _fits(value.get(part.name), part.type))
                yield from ((f"{field.name}.{part.name}", PeerError(words, code="bad_payload")) for part in parts)


def _fits(value: Any, number: Any) -> bool:
    """Return whether a value, if it is a number, is within this type's bounds."""
    try:
        msgspec.convert(value, number)
    except msgspec.ValidationError:
        return type(value) not in {int, float}
    return True


#: The largest integer up to which a double represents every integer.
_LARGEST_INTEGER = 2**53 - 1
#: JSON readers limit their nesting depth.
_MOST_LEVELS = 100


def arrives_as_it_is(value: Any, level: int = 0) -> bool:
    """Return whether every client reads this value exactly."""
    if isinstance(value, dict | list):
        parts = [*value, *value.values()] if isinstance(value, dict) else value
        return level < _MOST_LEVELS and all(arrives_as_it_is(part, level + 1) for part in parts)
    if isinstance(value, str):
        return not any("\ud800" <= letter <= "\udfff" for letter in value)
    if isinstance(value, float):
        return math.isfinite(value)
    # A boolean is an int, too.
    return value is None or (isinstance(value, int) and abs(value) <= _LARGEST_INTEGER)
