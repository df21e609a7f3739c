"""Read a card's position and size from a tool's arguments (pure)."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from sprite.protocol.canvas import OUT_OF_BOUNDS, CardPlace, CardSize
from sprite.protocol.shapes import Point, Size, is_place, is_size
from sprite.tools.blocks import BlockError, read_json

_Shape = TypeVar("_Shape", Point, Size)


def read_position(value: Any) -> Point | None:
    """Return a place on the canvas, or None if not given. Raises BlockError with a one-line message if invalid."""
    point = _read(value, Point, "position must be {x, y}")
    if point is not None and not is_place(point):
        raise BlockError(f"position: {OUT_OF_BOUNDS[CardPlace]}")
    return point


def read_size(value: Any) -> Size | None:
    """Return a card's size, or None if not given. Raises BlockError with a one-line message if invalid."""
    size = _read(value, Size, "size must be {width, height}")
    if size is not None and not is_size(size):
        raise BlockError(f"size: {OUT_OF_BOUNDS[CardSize]}")
    return size


def _read(value: Any, shape: type[_Shape], wanted: str) -> _Shape | None:
    if isinstance(value, str):
        value = read_json(value, wanted)
    if value is None:
        return None
    try:
        return msgspec.convert(value, shape)
    except msgspec.ValidationError as error:
        raise BlockError(f"{wanted}, in pixels: {error}") from error
