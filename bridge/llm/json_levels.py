"""Strict JSON, decoded by msgspec one level at a time; deeper levels stay raw.

One parser reads every value. An object that repeats a name is refused, because another parser could take the other
value. The work for one level is one pass over its bytes, so no single call holds the interpreter for long.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw

#: The API has no longer number, type or model name.
_LONGEST_SCALAR = 1 << 14
_MOST_SHOWN = 64
_OBJECT, _LIST, _STRING = b'{["'
_CONTAINERS = (_OBJECT, _LIST)


class MalformedError(ValueError):
    """The bytes are not JSON with exactly one reading. The message is written for users."""


class _Name:
    """A member name that equals no other name, so that a dict with such keys keeps repeated members apart."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


def _new_name(_kind: type, text: str) -> _Name:
    return _Name(text)


_MEMBERS = msgspec.json.Decoder(dict[_Name, Raw], dec_hook=_new_name)
_ITEMS = msgspec.json.Decoder(list[Raw])
_SCALARS = msgspec.json.Decoder()


def members(raw: Raw | bytes | bytearray) -> dict[str, Raw]:
    """Return the members of an object. MalformedError for anything else, and for a repeated name."""
    pairs = _decoded(_MEMBERS, raw)
    found = {name.text: value for name, value in pairs.items()}
    if len(found) != len(pairs):
        twice, _ = Counter(name.text for name in pairs).most_common(1)[0]
        raise MalformedError(f"The body says `{twice[:_MOST_SHOWN]}` twice in one object.")
    return found


def items(raw: Raw) -> list[Raw]:
    """Return the items of a list. MalformedError for anything else."""
    found: list[Raw] = _decoded(_ITEMS, raw)
    return found


def scalar(raw: Raw) -> Any:
    """Return a string, number, boolean or None. MalformedError for a very long one."""
    if len(memoryview(raw)) > _LONGEST_SCALAR:
        raise MalformedError("The body has a name or a number that is too long.")
    return _decoded(_SCALARS, raw)


def is_object(raw: Raw) -> bool:
    """Return whether the value is an object."""
    return memoryview(raw)[0] == _OBJECT


def is_list(raw: Raw) -> bool:
    """Return whether the value is a list."""
    return memoryview(raw)[0] == _LIST


def is_container(raw: Raw) -> bool:
    """Return whether the value is an object or a list."""
    return memoryview(raw)[0] in _CONTAINERS


def string_bytes(raw: Raw) -> int:
    """Return the number of bytes between a string's quotes as written; 0 for any other value."""
    written = memoryview(raw)
    return len(written) - 2 if written[0] == _STRING else 0


def encoded(found: Mapping[str, Raw]) -> bytes:
    """Return the object with these members, each as it was written."""
    return msgspec.json.encode(found)


def _decoded(decoder: msgspec.json.Decoder[Any], raw: Raw | bytes | bytearray) -> Any:
    try:
        return decoder.decode(raw)
    except RecursionError as error:
        raise MalformedError("The body's JSON is nested too deeply.") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise MalformedError(f"The body is not a JSON object that can be read ({error}).") from error
