"""`POST /v1/observations`: hand turns that other programs recorded to a person's sprite, which stores each once.

After a timeout they may have been stored anyway: a retry counts them as `known`.
"""

import asyncio
from collections.abc import Iterator
from typing import Annotated
from weakref import WeakValueDictionary

import msgspec
from aiohttp import web

from bridge.api.bodies import UnreadableError, decoded, refusing
from bridge.auth.admission import Admission, DoorError
from bridge.http.messages import as_json, body_within
from bridge.hub.hub import Relay
from bridge.hub.link import LinkDownError
from bridge.hub.room import SpriteHub
from sprite.common.tasks import off_loop
from sprite.protocol import observing
from sprite.protocol.messages import Error

_EXAMPLE = (
    '{"source": "my-program", "project": null, "turns": [{"external_id": "1", "session": "a", "at": 1795000000, '
    '"user": "Hello", "tools": [], "reply": "Hi.", "outcome": "complete"}]}'
)


class _Body(msgspec.Struct):
    source: Annotated[str, msgspec.Meta(max_length=observing.MAX_SOURCE_CHARS)]
    turns: list[msgspec.Raw]
    project: Annotated[str, msgspec.Meta(max_length=observing.MAX_PROJECT_CHARS)] | None = None


class Calls:
    """The observed turns of one request, in frames, and the refused turns. DoorError if the body is invalid."""

    def __init__(self, body: bytes) -> None:
        try:
            asked = decoded(body, _Body)
        except msgspec.ValidationError as error:
            raise DoorError(422, "bad_request", f"{error}. Send JSON such as {_EXAMPLE}") from error
        except UnreadableError as error:
            words = f"The body is not valid JSON: {error}. Example: {_EXAMPLE}"
            raise DoorError(400, "bad_json", words) from error
        if (count := len(asked.turns)) > observing.MAX_OBSERVED_TURNS:
            words = f"{count:,} turns are too many at once: send at most {observing.MAX_OBSERVED_TURNS}."
            raise DoorError(413, "too_many_turns", words)
        self._source, self._project = asked.source, asked.project
        self.refused: list[observing.RefusedTurn] = []
        self._turns: list[observing.ObservedTurn] = []
        for number, raw in enumerate(asked.turns):
            self._take(number, raw)

    def frames(self) -> Iterator[observing.Observe]:
        """Yield messages that fit in one frame each, in the order of the turns."""
        yield from observing.packed(self._source, self._project, self._turns)
        if not self._turns and not self.refused:
            # Sent even without turns, because the sprite validates the source.
            yield observing.Observe(self._source, [], self._project)

    def _take(self, number: int, raw: msgspec.Raw) -> None:
        try:
            turn = msgspec.json.decode(raw, type=observing.ObservedTurn)
        except msgspec.DecodeError as error:
            words = f"Turn {number + 1} cannot be read: {str(error)[:300]}."
            self.refused.append(observing.RefusedTurn(_id_of(raw, number), words))
            return
        if (size := observing.fitted(turn)) > observing.MOST_TURN_BYTES:
            limit = observing.MOST_TURN_BYTES
            words = f"The turn is too large: {size:,} bytes even after shortening; the limit is {limit:,}."
            self.refused.append(observing.RefusedTurn(turn.external_id[: observing.MAX_EXTERNAL_ID_CHARS], words))
        else:
            self._turns.append(turn)


def _id_of(raw: msgspec.Raw, number: int) -> str:
    """Return a refused turn's own id or, if it is unreadable, `turn N` for its index `number`."""
    try:
        given = msgspec.json.decode(raw)
    except msgspec.DecodeError:
        # It contains a number out of range.
        return f"turn {number + 1}"
    found = given.get("external_id") if isinstance(given, dict) else None
    return found[: observing.MAX_EXTERNAL_ID_CHARS] if isinstance(found, str) else f"turn {number + 1}"


#: A VM wakes in a second or two. A new one takes minutes, so the program has to retry.
_SECONDS = 60.0
_RETRY_SECONDS = 5
_AWAY = "The sprite could not be reached in time. Send the whole request again in a while; no turn is stored twice."
#: The sprite's error codes for invalid messages.
_BLAME_THE_CALLER = frozenset({"bad_request", "bad_payload", "bad_project", "too_large", "unknown_type"})


class Observations:
    """Serve the observations endpoint; `seconds` limits the wait for the sprite's answer to each frame."""

    def __init__(self, admission: Admission, relay: Relay, *, seconds: float = _SECONDS) -> None:
        self._admission = admission
        self._relay = relay
        self._seconds = seconds
        #: One call per person at a time is held in memory and sent.
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def table(self) -> list[web.RouteDef]:
        """Return the route."""
        return [web.post("/v1/observations", refusing(self._observe))]

    async def _observe(self, request: web.Request) -> web.StreamResponse:
        async with (
            self._admission.entered(request, "observe") as holder,
            self._locks.setdefault(holder.person, asyncio.Lock()),
        ):
            body = await body_within(request, observing.MAX_OBSERVED_BYTES)
            if body is None:
                words = f"The request is too large: at most {observing.MAX_OBSERVED_BYTES >> 20} MiB are allowed."
                raise DoorError(413, "request_too_large", words)
            calls = await off_loop(len(body), Calls, body)
            return as_json(await self._handed_on(holder.person, calls))

    async def _handed_on(self, person: str, calls: Calls) -> observing.Observed:
        whole = observing.Observed(0, 0, calls.refused)
        try:
            with self._relay.held(person) as room:
                for frame in calls.frames():
                    async with asyncio.timeout(self._seconds):
                        part = await _answer(room, frame)
                    whole.stored += part.stored
                    whole.known += part.known
                    whole.refused += part.refused
        except (TimeoutError, LinkDownError) as error:
            raise DoorError(503, "unavailable", _AWAY, retry_after=_RETRY_SECONDS) from error
        return whole


async def _answer(room: SpriteHub, frame: observing.Observe) -> observing.Observed:
    answer = await room.ask(frame)
    if isinstance(answer, observing.Observed):
        return answer
    if isinstance(answer, Error) and answer.code in _BLAME_THE_CALLER:
        raise DoorError(422, answer.code, answer.message)
    words = answer.message if isinstance(answer, Error) else "The sprite's answer is invalid."
    raise DoorError(503, "unavailable", f"{words} Send the whole request again in a while.", retry_after=_RETRY_SECONDS)
