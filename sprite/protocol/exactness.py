"""Check whether a JSON value reaches a client unchanged (pure).

A frame is UTF-8, and a page reads numbers as doubles. A value that either would change is not the value that a
person was shown.
"""

from __future__ import annotations

import math
from typing import Any

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
