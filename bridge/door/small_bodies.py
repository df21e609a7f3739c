"""Bodies of requests: read within a bound; small JSON objects, refused in words."""

from __future__ import annotations

from typing import TypeVar

import msgspec
from aiohttp import web

from bridge.door import messages

_T = TypeVar("_T")

#: A subscription of a browser's is the largest of them, with room to spare.
MAX_SMALL_BODY_BYTES = 8192


async def body_within(request: web.Request, most: int) -> bytes | None:
    """The request's body; None where it has more than so many bytes, of which no more are read."""
    if (request.content_length or 0) > most:
        return None
    body = bytearray()
    async for chunk in request.content.iter_any():
        body += chunk
        if len(body) > most:
            return None
    return bytes(body)


async def small_body(request: web.Request, type_: type[_T], example: str) -> _T | web.Response:
    """The request's body as that type; a response to give instead where it is too large or something else.

    `example` is a body that would do, for people to read.
    """
    body = await body_within(request, MAX_SMALL_BODY_BYTES)
    if body is None:
        words = f"This request may have up to {MAX_SMALL_BODY_BYTES >> 10} KiB."
        response = messages.page(request, 413, "This is too much at once", words, code="request_too_large")
        response.force_close()
        return response
    try:
        return msgspec.json.decode(body, type=type_)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return messages.page(
            request, 400, "This request is not as it must be", f"Send JSON such as `{example}`.", code="bad_request"
        )
