"""Request bodies with size limits, and small JSON objects with error messages."""

from __future__ import annotations

from typing import TypeVar

import msgspec
from aiohttp import web

from bridge.door import messages

_T = TypeVar("_T")

#: The largest is a browser's push subscription, with room to spare.
MAX_SMALL_BODY_BYTES = 8192


async def body_within(request: web.Request, most: int) -> bytes | None:
    """Return the request's body; None if it has more than `most` bytes, without reading the rest."""
    if (request.content_length or 0) > most:
        return None
    body = bytearray()
    async for chunk in request.content.iter_any():
        body += chunk
        if len(body) > most:
            return None
    return bytes(body)


async def small_body(request: web.Request, type_: type[_T], example: str) -> _T:
    """Return the request's body as that type. Raises AnsweredError if it is too large or invalid.

    `example` is a valid body for the error message.
    """
    body = await body_within(request, MAX_SMALL_BODY_BYTES)
    if body is None:
        words = f"This request may have up to {MAX_SMALL_BODY_BYTES >> 10} KiB."
        response = messages.page(request, 413, "This is too much at once", words, code="request_too_large")
        response.force_close()
        raise messages.AnsweredError(response)
    try:
        return msgspec.json.decode(body, type=type_)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        words = f"Send JSON such as `{example}`."
        raise messages.AnsweredError(
            messages.page(request, 400, "This request is not as it must be", words, code="bad_request")
        ) from error
