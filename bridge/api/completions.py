"""The endpoint: a chat completion with attachments is one of the person's missions, answered streamed or whole.

A client that disconnects early (as its Stop button does) stops the mission. With an `Idempotency-Key` the mission goes
on, and a retry with the same key gets its answer. Once the agent has a mission, no error asks clients to retry. A
revoked token always stops its missions.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

import msgspec
from aiohttp import web

from bridge.api.bodies import Turns
from bridge.api.completion_answers import Completion, Streamed, Whole, refusal
from bridge.api.completion_request import MODEL, UnfitError, read, unknown_model
from bridge.api.missions import AskError, mission_id_of
from bridge.auth.admission import DoorError, RevokedError
from bridge.http.messages import body_within
from bridge.hub.link import LinkDownError
from bridge.telemetry.logs import PERSON
from sprite.common.tasks import off_loop
from sprite.protocol.messages import Ack, Error, upload_chunks

if TYPE_CHECKING:
    from bridge.api.completion_request import Asked, Attachment
    from bridge.api.missions import Asking
    from bridge.auth.admission import Admission
    from bridge.client.turns import Turn
    from bridge.hub.hub import Relay
    from bridge.hub.room import SpriteHub
    from sprite.protocol.messages import ServerPayload


#: Size limits: a message with a few photographs, and the size above which a person's requests run one at a time.
_MAX_BODY_BYTES, _SMALL_BODY_BYTES = 20 * 2**20, 256 * 1024
_MAX_KEY_CHARS = 255
#: Limit for the sprite to accept a mission and its files.
_TAKING_SECONDS = 120.0
#: Interval of keep-alive comments in a silent stream, below the timeouts of proxies.
_QUIET_SECONDS = 5.0
_UNREACHED = "The sprite could not be reached in time. Send the message again in a while."
_MISSION: Final = web.RequestKey("mission", str)
_ANSWER: Final = web.RequestKey("answer", object)


class Completions:
    """The endpoint's routes."""

    def __init__(self, admission: Admission, relay: Relay, asking: Asking) -> None:
        self._admission = admission
        self._relay = relay
        self._asking = asking
        self._turns = Turns()

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
        whole = {"object": "list", "data": [model]} if asked is None else model
        return web.Response(body=msgspec.json.encode(whole), content_type="application/json")

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        try:
            async with self._admission.entered(request, "ask") as holder:
                return await self._answered(request, holder.person)
        except RevokedError as error:
            return await self._cut(request, error)
        except DoorError as error:
            return refusal(error)

    async def _cut(self, request: web.Request, error: RevokedError) -> web.StreamResponse:
        if _MISSION in request:
            self._asking.stop(request[PERSON], request[_MISSION])
        answer = request.get(_ANSWER)
        return await answer.cut(error) if isinstance(answer, Streamed | Whole) else refusal(error)

    async def _answered(self, request: web.Request, person: str) -> web.StreamResponse:
        key = request.headers.get("Idempotency-Key")
        if key is not None and len(key) > _MAX_KEY_CHARS:
            raise UnfitError(None, f"An Idempotency-Key has up to {_MAX_KEY_CHARS} characters.")
        asked, text = await self._read(request, person)
        mission_id = request[_MISSION] = mission_id_of(person, key)
        answer = request[_ANSWER] = _answer(request, asked, mission_id)
        try:
            async with self._asking.asked(
                person,
                text,
                mission_id,
                # The last message has the role user: a person typed it into their app.
                asked_by=None,
                goes_on=key is not None,
                quiet_seconds=_QUIET_SECONDS,
            ) as changes:
                return await answer.told(self._taken_in_time(changes))
        except AskError as error:
            return await answer.failed(error)

    async def _read(self, request: web.Request, person: str) -> tuple[Asked, str]:
        """Return the parsed request and its mission text. Uploads its files to documents/."""
        if (request.content_length or _MAX_BODY_BYTES) <= _SMALL_BODY_BYTES:
            return await self._mission(request, person)
        async with self._turns.of(person):
            return await self._mission(request, person)

    async def _mission(self, request: web.Request, person: str) -> tuple[Asked, str]:
        body = await body_within(request, _MAX_BODY_BYTES)
        if body is None:
            words = f"A message may have up to {_MAX_BODY_BYTES >> 20} MiB, with everything that goes along with it."
            raise UnfitError(None, words, status=413, code="request_too_large")
        asked = await off_loop(len(body), read, body)
        paths: list[str] = []
        if asked.attachments:
            try:
                async with asyncio.timeout(_TAKING_SECONDS):
                    with self._relay.held(person) as room:
                        paths = [await _uploaded(room, file) for file in asked.attachments]
            except (TimeoutError, LinkDownError) as error:
                raise DoorError(503, "unavailable", _UNREACHED, retry_after=5) from error
            asked.attachments.clear()
        return asked, asked.mission(paths)

    async def _taken_in_time(self, changes: AsyncIterator[Turn | None]) -> AsyncIterator[Turn | None]:
        """Pass changes on. Raises AskError if the sprite does not accept the mission in time."""
        until = time.monotonic() + _TAKING_SECONDS
        is_taken = False
        async for turn in changes:
            is_taken = is_taken or turn is not None
            if not is_taken and time.monotonic() > until:
                raise AskError("unavailable", _UNREACHED)
            yield turn


async def _uploaded(room: SpriteHub, file: Attachment) -> str:
    """Upload a file into documents/ and return its path. Raises AskError if the sprite refuses it."""
    answer: ServerPayload | None = None
    for chunk in upload_chunks(file.name, file.data):
        answer = await room.ask(chunk)
        if isinstance(answer, Error):
            raise AskError(answer.code, answer.message)
    if not isinstance(answer, Ack) or answer.path is None:
        raise AskError("bad_answer", "The sprite does not say where the file is.")
    return answer.path


def _answer(request: web.Request, asked: Asked, mission_id: str) -> Streamed | Whole:
    headers = {"X-Sprite-Mission": mission_id}
    if asked.ignored:
        headers["X-Sprite-Ignored"] = ", ".join(asked.ignored)
    completion = Completion(mission_id)
    if asked.is_streamed:
        return Streamed(request, completion, headers, with_usage=asked.with_usage)
    return Whole(completion, headers)
