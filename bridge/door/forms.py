"""Form data of the bridge's own pages, read with limits."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from bridge.door.small_bodies import MAX_SMALL_BODY_BYTES, body_within

if TYPE_CHECKING:
    from aiohttp import web

_MAX_FIELDS = 20


async def small_form(request: web.Request) -> dict[str, str]:
    """Return the first value of each field; empty for a form that is too large."""
    body = await body_within(request, MAX_SMALL_BODY_BYTES)
    try:
        fields = parse_qs((body or b"").decode("utf-8", "replace"), max_num_fields=_MAX_FIELDS)
    except ValueError:
        return {}
    return {name: values[0] for name, values in fields.items()}
