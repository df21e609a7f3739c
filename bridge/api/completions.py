"""`POST /v1/chat/completions`: a chat completion is one of the person's missions, answered streamed or whole.

A client that disconnects early stops the mission. Once the agent has a mission, no error asks clients to retry.
"""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any

import msgspec
from aiohttp import web

from bridge.api.bodies import in_json
from bridge.api.completion_request import MODEL, Asked, UnfitError, read, unknown_model
from bridge.api.missions import AskError, Asking
from bridge.auth.admission import Admission, DoorError, RevokedError
from bridge.auth.tokens import Holder
from bridge.client.turns import Grew, News, Reader, Turn
from bridge.http.messages import body_within
from bridge.notify import notice as wording
from sprite.common.tasks import off_loop
from sprite.protocol.events import Complete, Ending, Failed, Interrupted
from sprite.protocol.messages import PermissionRequest

_BETWEEN = "\n\n"
_INTERRUPTED = "(The answer was stopped before its end.)"


class GrowingText:
    """Merge the agent's texts of a turn, each a paragraph, into one growing text. Sent text cannot be taken back.

    With `tells_questions`, permission requests appear in the text.
    """

    def __init__(self, *, tells_questions: bool) -> None:
        self._tells_questions = tells_questions
        self._reader = Reader()
        self._is_begun = False

    def add(self, turn: Turn) -> str:
        """Return the text to append, often empty."""
        return "".join(map(self._piece, self._reader.news(turn)))

    def _piece(self, news: News) -> str:
        match news:
            case Grew(piece=piece, begins=begins) if piece:
                return self._apart(piece) if begins else piece
            case Interrupted():
                return self._apart(_INTERRUPTED)
            case PermissionRequest() if self._tells_questions:
                title, body = wording.of_question(news.tool, news.input)
                told = f" ({body})" if body else ""
                return self._apart(f"[{title}{told} Answer on Sprite's page to continue.]")
        return ""

    def _apart(self, words: str) -> str:
        """Return the words of a new paragraph, with a separator before it if it is not the first."""
        between = _BETWEEN if self._is_begun else ""
        self._is_begun = True
        return between + words


def usage_of(ending: Ending | None) -> dict[str, Any] | None:
    """Return the token usage in OpenAI's format, or None if it is unknown."""
    usage = ending.usage if isinstance(ending, Complete) else None
    if usage is None:
        return None
    prompt = usage.input_tokens + usage.cache_read_input_tokens + usage.cache_creation_input_tokens
    return {
        "prompt_tokens": prompt,
        "completion_tokens": usage.output_tokens,
        "total_tokens": prompt + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read_input_tokens},
    }


def problem_of(fault: Failed | AskError) -> tuple[int, str, str, str]:
    """Return the HTTP status, OpenAI's error type, the code and the message of a failure."""
    code, words = fault.code, fault.message if isinstance(fault, Failed) else str(fault)
    status, kind = _PROBLEMS.get(code, (500, "server_error"))
    return status, kind, code, words


_INVALID = (400, "invalid_request_error")
#: The HTTP status and OpenAI's error type for each code.
_PROBLEMS = {
    "rate_limited": (429, "rate_limit_error"),
    "gone": (409, "invalid_request_error"),
    **dict.fromkeys(("bad_request", "bad_payload", "too_long", "bad_attachment", "not_found"), _INVALID),
    # A retry would end the same way, and clients retry errors with status 500.
    **dict.fromkeys(("declined", "answer_too_long", "context_full", "conversation_broken"), _INVALID),
    **dict.fromkeys(("budget_used_up", "no_credit"), (429, "insufficient_quota")),
    **dict.fromkeys(("overloaded", "queue_full", "storage", "shortage", "stopping"), (503, "server_error")),
}
#: A client that reads nothing for this long is disconnected.
_WRITE_SECONDS = 60.0
_FAREWELL_SECONDS = 1.0
_RETRY_SECONDS = 5
#: Codes of missions that never reached the agent, so the client may retry.
_NOT_TAKEN = frozenset({"queue_full", "unavailable"})
_SERVERS_FAULT = 500


class Answer:
    """Send the answer to one request: whole as JSON, or as server-sent events.

    A stream starts with the first text or after a while, so early failures get their own status.
    """

    def __init__(self, request: web.Request, asked: Asked) -> None:
        self.mission_id = str(uuid.uuid4())
        self._request = request
        self._asked = asked
        self._head: dict[str, Any] = {
            "id": f"chatcmpl-{self.mission_id}",
            "created": int(time.time()),
            "model": MODEL,
            "object": "chat.completion.chunk" if asked.is_streamed else "chat.completion",
        }
        self._headers = {"X-Sprite-Mission": self.mission_id}
        if asked.ignored:
            self._headers["X-Sprite-Ignored"] = ", ".join(asked.ignored)
        self._response: web.StreamResponse | None = None

    async def told(self, changes: AsyncIterator[Turn | None]) -> web.StreamResponse:
        """Send the turn's text and return the response after its end. Raise AskError if the end will not arrive."""
        if not self._asked.is_streamed:
            return await self._whole(changes)
        growing = GrowingText(tells_questions=True)
        ending = None
        async for turn in changes:
            if turn is None:
                await self._write(b": the agent is at work, or on its way\n\n")
                continue
            ending = turn.ending
            if piece := growing.add(turn):
                await self._write(self._chunk({"content": piece}))
        if isinstance(ending, Failed):
            return await self.failed(ending)
        await self._write(self._chunk({}, "stop"))
        if self._asked.with_usage:
            usage = usage_of(ending) or {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
            await self._write(_event({**self._head, "choices": [], "usage": usage}))
        await self._write(b"data: [DONE]\n\n")
        return await self._finished()

    async def failed(self, fault: Failed | AskError) -> web.StreamResponse:
        """Return the response for a mission that failed."""
        if self._response is None:
            return problem(fault, self._headers)
        status, kind, code, words = problem_of(fault)
        await self._write(_event(_error(status, code, words, kind)))
        return await self._finished()

    async def cut(self, error: DoorError) -> web.StreamResponse:
        """Return the response after the token was revoked. Raises ConnectionResetError if a response has started."""
        if self._response is None:
            return refusal(error)
        # A client that does not read misses this error. The bridge does not wait for it.
        with suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(_FAREWELL_SECONDS):
                await self._response.write(_event(_error(error.status, error.code, str(error))))
        if self._request.transport is not None:
            self._request.transport.abort()
        raise ConnectionResetError(str(error))

    async def _whole(self, changes: AsyncIterator[Turn | None]) -> web.StreamResponse:
        growing = GrowingText(tells_questions=False)
        text, ending = "", None
        async for turn in changes:
            if turn is not None:
                text, ending = text + growing.add(turn), turn.ending
        if isinstance(ending, Failed):
            return await self.failed(ending)
        message = {"role": "assistant", "content": text, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}
        usage = usage_of(ending)
        return in_json(200, {**self._head, "choices": [choice], **({"usage": usage} if usage else {})}, self._headers)

    def _chunk(self, delta: dict[str, Any], finish_reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return _event({**self._head, "choices": [choice]})

    async def _write(self, data: bytes) -> None:
        if self._response is None:
            headers = {**self._headers, "Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
            self._response = web.StreamResponse(headers=headers)
            self._response.content_type = "text/event-stream"
            self._response.charset = "utf-8"
            await self._response.prepare(self._request)
            data = self._chunk({"role": "assistant", "content": ""}) + data
        try:
            async with asyncio.timeout(_WRITE_SECONDS):
                await self._response.write(data)
        except TimeoutError as error:
            if self._request.transport is not None:
                self._request.transport.abort()
            raise ConnectionResetError("the client accepts no more data") from error

    async def _finished(self) -> web.StreamResponse:
        assert self._response is not None  # noqa: S101 - something was written
        with suppress(ConnectionError):
            await self._response.write_eof()
        return self._response


def refusal(error: DoorError) -> web.Response:
    """Return a refusal in the format of OpenAI's errors."""
    param = error.param if isinstance(error, UnfitError) else None
    code = "invalid_api_key" if error.code == "unauthorized" else error.code
    return in_json(error.status, _error(error.status, code, str(error), param=param), error.headers())


def problem(fault: Failed | AskError, headers: Mapping[str, str]) -> web.Response:
    """Return a failure in OpenAI's error format. Tells clients not to retry missions that reached the agent."""
    status, kind, code, words = problem_of(fault)
    again = isinstance(fault, AskError) and code in _NOT_TAKEN
    retry = {"Retry-After": str(_RETRY_SECONDS)} if again else {"X-Should-Retry": "false"}
    return in_json(status, _error(status, code, words, kind), {**headers, **retry})


def _error(status: int, code: str, words: str, kind: str | None = None, param: str | None = None) -> dict[str, Any]:
    kind = kind or ("invalid_request_error" if status < _SERVERS_FAULT else "server_error")
    return {"error": {"message": words, "type": kind, "param": param, "code": code}}


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + msgspec.json.encode(value) + b"\n\n"


#: Clients send the whole conversation each time.
_MAX_BODY_BYTES = 4 * 2**20
#: Limit for the sprite to accept a mission.
_TAKING_SECONDS = 120.0
#: Interval of keep-alive comments in a silent stream, below the timeouts of proxies.
_QUIET_SECONDS = 5.0
_UNREACHED = "The sprite could not be reached in time. Send the message again in a while."


class Completions:
    """Serve the completions endpoint."""

    def __init__(self, admission: Admission, asking: Asking) -> None:
        self._admission = admission
        self._asking = asking

    def table(self) -> list[web.RouteDef]:
        """Return the routes except `GET /v1/models`, which the model proxy shares."""
        return [
            web.post("/v1/chat/completions", self._complete),
            web.get("/v1/models/{model}", self.models, allow_head=False),
        ]

    async def models(self, request: web.Request) -> web.StreamResponse:
        """Answer GET /v1/models and /v1/models/NAME with the only model."""
        asked = request.match_info.get("model")
        model = {"id": MODEL, "object": "model", "created": 0, "owned_by": "sprite"}
        try:
            async with self._admission.entered(request, "ask"):
                if asked not in {None, MODEL}:
                    raise unknown_model()
        except DoorError as error:
            return refusal(error)
        return in_json(200, {"object": "list", "data": [model]} if asked is None else model, {})

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        answer: Answer | None = None
        try:
            async with self._admission.entered(request, "ask") as holder:
                asked = await _asked(request)
                answer = Answer(request, asked)
                return await self._answered(answer, asked, holder)
        except RevokedError as error:
            return refusal(error) if answer is None else await answer.cut(error)
        except DoorError as error:
            return refusal(error)

    async def _answered(self, answer: Answer, asked: Asked, holder: Holder) -> web.StreamResponse:
        message = asked.mission()
        try:
            async with self._asking.asked(
                holder.person,
                message.text,
                answer.mission_id,
                # Only this shows that a person typed the message.
                asked_by=None if asked.names_user else holder.label,
                pasted=message.pasted,
                quiet_seconds=_QUIET_SECONDS,
            ) as changes:
                return await answer.told(_taken_in_time(changes))
        except AskError as error:
            return await answer.failed(error)


async def _asked(request: web.Request) -> Asked:
    body = await body_within(request, _MAX_BODY_BYTES)
    if body is None:
        words = f"A request may have up to {_MAX_BODY_BYTES >> 20} MiB, including earlier messages."
        raise UnfitError(None, words, status=413, code="request_too_large")
    return await off_loop(len(body), read, body)


async def _taken_in_time(changes: AsyncIterator[Turn | None]) -> AsyncIterator[Turn | None]:
    """Yield the turn's changes. Raise AskError if the sprite does not accept the mission in time."""
    until = time.monotonic() + _TAKING_SECONDS
    is_taken = False
    async for turn in changes:
        is_taken = is_taken or turn is not None
        if not is_taken and time.monotonic() > until:
            raise AskError("unavailable", _UNREACHED)
        yield turn
