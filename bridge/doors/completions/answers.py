"""Responses to a chat completion: a stream of events, or one JSON body."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
from aiohttp import web

from bridge.doors.asking import AskError, Quiet
from bridge.doors.completions.asked import UnfitError
from bridge.doors.completions.reply import Completion, GrowingText, problem_of, usage_of
from sprite.protocol.events import Complete, Ending, Failed

if TYPE_CHECKING:
    from bridge.door.admission import DoorError
    from bridge.doors.asking import Heard

#: A client that reads nothing for this long is disconnected.
_WRITE_SECONDS = 60.0
_FAREWELL_SECONDS = 1.0
_RETRY_SECONDS = 5
#: Codes of missions that never reached the agent, so the client may retry.
_NOT_TAKEN = frozenset({"queue_full", "unavailable"})
_SERVERS_FAULT = 500


class Answer(Protocol):
    """Format of the response to a client."""

    async def told(self, events: AsyncIterator[Heard]) -> web.StreamResponse:
        """Send the mission's events and return the response after the ending. Raises AskError if there will be none."""

    async def failed(self, error: AskError) -> web.StreamResponse:
        """Return the response for a mission that failed."""

    async def cut(self, error: DoorError) -> web.StreamResponse:
        """Return the response for a revoked token. Raises ConnectionResetError if a response has started."""


class Whole:
    """The whole answer in one JSON body."""

    def __init__(self, completion: Completion, headers: Mapping[str, str]) -> None:
        self._completion = completion
        self._headers = headers

    async def told(self, events: AsyncIterator[Heard]) -> web.StreamResponse:
        """See Answer."""
        growing = GrowingText(tells_questions=False)
        text, last = "", None
        async for heard in events:
            text, last = text + growing.add(heard), heard
        if isinstance(last, Failed):
            return problem(last, self._headers)
        usage = usage_of(last) if isinstance(last, Complete) else None
        body = msgspec.json.encode(self._completion.whole(text, usage))
        return web.Response(body=body, content_type="application/json", headers=self._headers)

    async def failed(self, error: AskError) -> web.StreamResponse:
        """See Answer."""
        return problem(error, self._headers)

    async def cut(self, error: DoorError) -> web.StreamResponse:
        """See Answer."""
        return refusal(error)


class Streamed:
    """Server-sent events.

    The stream starts with the first text or after a while, so early failures get their own status.
    """

    def __init__(
        self, request: web.Request, completion: Completion, headers: Mapping[str, str], *, with_usage: bool
    ) -> None:
        self._request = request
        self._completion = completion
        self._headers = headers
        self._with_usage = with_usage
        self._response: web.StreamResponse | None = None

    async def told(self, events: AsyncIterator[Heard]) -> web.StreamResponse:
        """See Answer."""
        growing = GrowingText(tells_questions=True)
        async for heard in events:
            if isinstance(heard, Failed):
                return await self._ended_badly(heard)
            if isinstance(heard, Quiet):
                await self._write(b": the agent is at work, or on its way\n\n")
            if piece := growing.add(heard):
                await self._send(self._completion.piece(piece))
            if isinstance(heard, Ending):
                usage = usage_of(heard) if isinstance(heard, Complete) else None
                for chunk in self._completion.last(usage, with_usage=self._with_usage):
                    await self._send(chunk)
        await self._write(b"data: [DONE]\n\n")
        return await self._finished()

    async def failed(self, error: AskError) -> web.StreamResponse:
        """See Answer."""
        return await self._ended_badly(error)

    async def cut(self, error: DoorError) -> web.StreamResponse:
        """See Answer."""
        if self._response is None:
            return refusal(error)
        # A client that does not read misses this error. The bridge does not wait for it.
        with suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(_FAREWELL_SECONDS):
                await self._response.write(_event(_error(error.status, error.code, str(error))))
        if self._request.transport is not None:
            self._request.transport.abort()
        raise ConnectionResetError(str(error))

    async def _ended_badly(self, fault: Failed | AskError) -> web.StreamResponse:
        if self._response is None:
            return problem(fault, self._headers)
        status, kind, code, words = problem_of(fault)
        await self._send(_error(status, code, words, kind))
        return await self._finished()

    async def _send(self, value: dict[str, Any]) -> None:
        await self._write(_event(value))

    async def _write(self, data: bytes) -> None:
        if self._response is None:
            headers = {**self._headers, "Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
            self._response = web.StreamResponse(headers=headers)
            self._response.content_type = "text/event-stream"
            self._response.charset = "utf-8"
            await self._response.prepare(self._request)
            data = _event(self._completion.first()) + data
        try:
            async with asyncio.timeout(_WRITE_SECONDS):
                await self._response.write(data)
        except TimeoutError as error:
            if self._request.transport is not None:
                self._request.transport.abort()
            raise ConnectionResetError("the client takes nothing any more") from error

    async def _finished(self) -> web.StreamResponse:
        assert self._response is not None  # noqa: S101 - something was written
        with suppress(ConnectionError):
            await self._response.write_eof()
        return self._response


def refusal(error: DoorError) -> web.Response:
    """Return a refusal in the format of OpenAI's errors."""
    param = error.param if isinstance(error, UnfitError) else None
    code = "invalid_api_key" if error.code == "unauthorized" else error.code
    return _json(error.status, _error(error.status, code, str(error), param=param), error.headers())


def problem(fault: Failed | AskError, headers: Mapping[str, str]) -> web.Response:
    """Return a failure in OpenAI's error format. Tells clients not to retry missions that reached the agent."""
    status, kind, code, words = problem_of(fault)
    again = isinstance(fault, AskError) and code in _NOT_TAKEN
    retry = {"Retry-After": str(_RETRY_SECONDS)} if again else {"X-Should-Retry": "false"}
    return _json(status, _error(status, code, words, kind), {**headers, **retry})


def _error(status: int, code: str, words: str, kind: str | None = None, param: str | None = None) -> dict[str, Any]:
    kind = kind or ("invalid_request_error" if status < _SERVERS_FAULT else "server_error")
    return {"error": {"message": words, "type": kind, "param": param, "code": code}}


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


def _json(status: int, value: dict[str, Any], headers: Mapping[str, str]) -> web.Response:
    response = web.Response(
        status=status, body=msgspec.json.encode(value), content_type="application/json", headers=headers
    )
    if status == web.HTTPRequestEntityTooLarge.status_code:
        # The rest of the body is not read.
        response.force_close()
    return response
