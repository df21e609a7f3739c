"""JSON from programs, tolerant of lone surrogates from text that was cut inside an emoji (pure)."""

import json
from collections.abc import Mapping
from functools import wraps
from typing import Any, NoReturn

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from bridge.auth.admission import DoorError
from sprite.protocol.frames import well_formed


class UnreadableError(ValueError):
    """A program's JSON is invalid, or nested too deeply; the message says which."""


#: Limits for brackets and commas, including those in text: far above any reasonable call.
_MOST_BRACKETS, _MOST_COMMAS = 600_000, 2_000_000


def decoded(body: bytes, type_: Any) -> Any:
    """Decode a JSON body. Raise msgspec.ValidationError for a wrong shape, UnreadableError for invalid JSON."""
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
    """Return the body with question marks for lone surrogates. UnreadableError if the `error` had another reason."""
    try:
        return msgspec.json.encode(well_formed(json.loads(body.decode(), parse_constant=_no_number)))
    except (ValueError, RecursionError, OverflowError) as worse:
        is_deep = isinstance(error, RecursionError) or isinstance(worse, RecursionError)
        raise UnreadableError("nested too deeply" if is_deep else str(error)[:300]) from worse


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is not valid JSON")


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
    """Return the JSON response for a refused request of a program."""
    return in_json(error.status, {"error": {"code": error.code, "message": str(error)}}, error.headers())


def in_json(status: int, value: object, headers: Mapping[str, str]) -> web.Response:
    """Return a value as JSON. The connection of a request that was too large to read is closed."""
    body = msgspec.json.encode(value)
    response = web.Response(status=status, body=body, content_type="application/json", headers=headers)
    if status == web.HTTPRequestEntityTooLarge.status_code:
        response.force_close()
    return response
