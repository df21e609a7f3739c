"""Refusals of the API endpoints: `{"error": {"code", "message"}}`, with a message for people."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps

import msgspec
from aiohttp import web

from bridge.door.admission import DoorError
from bridge.door.small_bodies import body_within

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def refusing(handler: Handler) -> Handler:
    """Wrap a handler to turn DoorErrors into responses."""

    @wraps(handler)
    async def answer(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except DoorError as error:
            return refusal(error)

    return answer


def refusal(error: DoorError) -> web.Response:
    """Return the response for a refused program."""
    body = msgspec.json.encode({"error": {"code": error.code, "message": str(error)}})
    response = web.Response(status=error.status, body=body, content_type="application/json", headers=error.headers())
    if error.status == web.HTTPRequestEntityTooLarge.status_code:
        # The rest of the body is not read.
        response.force_close()
    return response


async def whole_body(request: web.Request, most: int) -> bytes:
    """Return the request's body. Raises DoorError if it has more than `most` bytes."""
    body = await body_within(request, most)
    if body is None:
        raise DoorError(413, "request_too_large", f"This request may have up to {most >> 20} MiB.")
    return body
