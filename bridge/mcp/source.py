"""A person's memory, agent and cards for the MCP tools, requested from the sprite over the relay."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from bridge.doors.asking import AskError, Asking, mission_id_of
from bridge.hosts.host import HostError
from bridge.relay.link import LinkDownError
from bridge.relay.sprite_connection import LinkError
from sprite.protocol.frames import PeerError
from sprite.protocol.memory import ActionsRequest, AddActionRequest, AnyMemoryRequest, MemoryResult
from sprite.protocol.messages import ClientPayload, Error, ServerPayload
from sprite.protocol.offered.watching import MissionWatch

if TYPE_CHECKING:
    from bridge.doors.asking import Asking
    from bridge.relay.relay import Relay
    from sprite.protocol.messages import ClientPayload, ServerPayload
    from sprite.protocol.offered.tools import MissionEnd, Told
    from sprite.protocol.shapes import Card

#: Limit for an answer: a sleeping sprite has to wake, and clients wait for a minute.
_ANSWER_SECONDS = 50.0
#: Buffered progress messages; a slow client gets the newest.
_UNTOLD = 20
_AWAY = "The person's agent cannot be reached at the moment. Nothing is lost; try again in a while."


class RelayedSource:
    """One person's source; `asked_by` names the program, so that its words are not attributed to the person."""

    def __init__(self, relay: Relay, asking: Asking, person: str, asked_by: str) -> None:
        self._relay = relay
        self._asking = asking
        self._person = person
        self._asked_by = asked_by

    async def answer(self, request: AnyMemoryRequest) -> MemoryResult:
        """See Source."""
        if isinstance(request, AddActionRequest):
            # Requests are repeated after a lost link, which could add the action twice. This request makes sure that
            # the link is up.
            await self._ask(ActionsRequest())
        answer = await self._ask(request)
        if not isinstance(answer, MemoryResult):
            raise PeerError("The sprite's answer makes no sense; update the bridge and the sprite.", code="unexpected")
        return answer

    async def mission(self, text: str, told: Told) -> MissionEnd:
        """See Source."""
        mission_id = mission_id_of(self._person, None)
        watch, untold = MissionWatch(mission_id), deque[str](maxlen=_UNTOLD)

        def hear(payload: ServerPayload) -> None:
            if (words := watch.hear(payload)) is not None:
                untold.append(words)

        asked = self._asking.asked(self._person, text, mission_id, asked_by=self._asked_by, watch=hear)
        try:
            async with asked as changes:
                async for turn in changes:
                    while untold:
                        await told(untold.popleft())
                    if turn is not None and turn.ending is not None:
                        # A missed ending was looked up in the chat.
                        watch.hear(turn.ending)
        except AskError as error:
            raise PeerError(str(error), code=error.code) from error
        if watch.end is None:
            raise PeerError(_AWAY, code="unavailable")
        return watch.end

    async def cards(self) -> list[Card]:
        """See CardSource."""
        try:
            with self._relay.held(self._person) as room:
                return (await room.state()).cards
        except (HostError, LinkError, OSError, TimeoutError) as error:
            raise PeerError(_AWAY, code="unavailable") from error

    async def _ask(self, payload: ClientPayload) -> ServerPayload:
        """Return the sprite's answer. Raises PeerError if it refuses or is unreachable."""
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                with self._relay.held(self._person) as room:
                    answer = await room.ask(payload)
        except (TimeoutError, LinkDownError) as error:
            raise PeerError(_AWAY, code="unavailable") from error
        if isinstance(answer, Error):
            raise PeerError(answer.message, code=answer.code)
        return answer
