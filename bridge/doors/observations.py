"""`POST /v1/observations`: import turns that other programs recorded into a person's memory.

The turns go to the person's sprite, which redacts, truncates and stores each once; the bridge keeps none. After a
timeout they may have been stored anyway: a retry counts them as `known`.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
from aiohttp import web

from bridge.door.admission import DoorError
from bridge.doors.observed_turns import Calls
from bridge.doors.refusals import refusing, whole_body
from bridge.doors.turns import Turns
from bridge.relay.link import LinkDownError
from sprite.protocol.large_input import off_loop
from sprite.protocol.messages import Error
from sprite.protocol.observing import MAX_OBSERVED_BYTES, Observed

if TYPE_CHECKING:
    from bridge.door.admission import Admission
    from bridge.relay.relay import Relay
    from bridge.relay.room import Room
    from sprite.protocol.observing import Observe

#: A VM wakes in a second or two. A new one takes minutes, so the program has to retry.
_SECONDS = 60.0
_RETRY_SECONDS = 5
#: The sprite's error codes for invalid messages.
_BLAME_THE_CALLER = frozenset({"bad_request", "bad_payload", "bad_project", "too_large", "unknown_type"})


class Observations:
    """The endpoint; `seconds` limits the wait for the sprite's answer to each frame."""

    def __init__(self, admission: Admission, relay: Relay, *, seconds: float = _SECONDS) -> None:
        self._admission = admission
        self._relay = relay
        self._seconds = seconds
        #: One call per person at a time is held in memory and sent.
        self._turns = Turns()

    def table(self) -> list[web.RouteDef]:
        """Return the route."""
        return [web.post("/v1/observations", refusing(self._observe))]

    async def _observe(self, request: web.Request) -> web.StreamResponse:
        async with self._admission.entered(request, "observe") as holder, self._turns.of(holder.person):
            body = await whole_body(request, MAX_OBSERVED_BYTES)
            calls = await off_loop(len(body), Calls, body)
            observed = await self._handed_on(holder.person, calls)
        return web.Response(
            body=msgspec.json.encode(observed), content_type="application/json", headers={"Cache-Control": "no-store"}
        )

    async def _handed_on(self, person: str, calls: Calls) -> Observed:
        whole = Observed(0, 0, calls.refused)
        try:
            with self._relay.held(person) as room:
                for frame in calls.frames():
                    async with asyncio.timeout(self._seconds):
                        part = await _answer(room, frame)
                    whole.stored += part.stored
                    whole.known += part.known
                    whole.refused += part.refused
        except (TimeoutError, LinkDownError) as error:
            raise DoorError(
                503,
                "unavailable",
                "The sprite could not be reached in time. Send all of it again in a while: nothing is written twice.",
                retry_after=_RETRY_SECONDS,
            ) from error
        return whole


async def _answer(room: Room, frame: Observe) -> Observed:
    answer = await room.ask(frame)
    if isinstance(answer, Observed):
        return answer
    if isinstance(answer, Error) and answer.code in _BLAME_THE_CALLER:
        raise DoorError(422, answer.code, answer.message)
    words = answer.message if isinstance(answer, Error) else "The sprite's answer makes no sense."
    raise DoorError(503, "unavailable", f"{words} Send all of it again in a while.", retry_after=_RETRY_SECONDS)
