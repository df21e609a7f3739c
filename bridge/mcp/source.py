"""A person's memory, agent and cards as MCP's tools ask for them: every question goes over the relay to the sprite."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from bridge.doors.asking import AskError, mission_id_of
from bridge.hosts.host import HostError
from bridge.relay.link import LinkDownError
from bridge.relay.sprite_connection import LinkError
from sprite.protocol.events import Ending
from sprite.protocol.frames import PeerError
from sprite.protocol.memory import ActionsRequest, AddActionRequest, AnyMemoryRequest, MemoryResult
from sprite.protocol.messages import Error
from sprite.protocol.offered.watching import MissionWatch

if TYPE_CHECKING:
    from bridge.doors.asking import Asking
    from bridge.relay.link import LinkChange
    from bridge.relay.relay import Relay
    from sprite.protocol.frames import ServerMessage
    from sprite.protocol.messages import ClientPayload, ServerPayload
    from sprite.protocol.offered.tools import MissionEnd, Told
    from sprite.protocol.shapes import Card

#: A sprite that sleeps has to wake first; a caller waits a minute for an answer, as clients do.
_ANSWER_SECONDS = 50.0
#: What was not told yet: a client that reads slowly hears the newest of it.
_UNTOLD = 20
_AWAY = "The person's agent cannot be reached at the moment. Nothing is lost; try again in a while."


class RelayedSource:
    """One person's; `asked_by` names the program that asks: what it hands over is its word, and never the person's."""

    def __init__(self, relay: Relay, asking: Asking, person: str, asked_by: str) -> None:
        self._relay = relay
        self._asking = asking
        self._person = person
        self._asked_by = asked_by

    async def answer(self, request: AnyMemoryRequest) -> MemoryResult:
        """See Source."""
        if isinstance(request, AddActionRequest):
            # What is asked is asked again after a cut, and this would then be added twice: first the link has to stand.
            await self._ask(ActionsRequest())
        answer = await self._ask(request)
        if not isinstance(answer, MemoryResult):
            raise PeerError("The sprite's answer makes no sense; update the bridge and the sprite.", code="unexpected")
        return answer

    async def mission(self, text: str, told: Told) -> MissionEnd:
        """See Source."""
        mission_id = mission_id_of(self._person, None)
        ear = _Ear(MissionWatch(mission_id))
        try:
            with self._relay.held(self._person) as room, room.heard_by(ear):
                asked = self._asking.asked(self._person, text, mission_id, asked_by=self._asked_by)
                async with asked as all_heard:
                    async for heard in all_heard:
                        while ear.untold:
                            await told(ear.untold.popleft())
                        if isinstance(heard, Ending):
                            # One that was missed was looked for in the chat.
                            ear.watch.hear(heard)
        except AskError as error:
            raise PeerError(str(error), code=error.code) from error
        if ear.watch.end is None:
            raise PeerError(_AWAY, code="unavailable")
        return ear.watch.end

    async def cards(self) -> list[Card]:
        """See CardSource."""
        try:
            with self._relay.held(self._person) as room:
                return (await room.state()).cards
        except (HostError, LinkError, OSError, TimeoutError) as error:
            raise PeerError(_AWAY, code="unavailable") from error

    async def _ask(self, payload: ClientPayload) -> ServerPayload:
        """The sprite's answer. PeerError, in words, where it refuses, or cannot be reached."""
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                with self._relay.held(self._person) as room:
                    answer = await room.ask(payload)
        except (TimeoutError, LinkDownError) as error:
            raise PeerError(_AWAY, code="unavailable") from error
        if isinstance(answer, Error):
            raise PeerError(answer.message, code=answer.code)
        return answer


class _Ear:
    """Hears a room on behalf of one mission: what to tell of it, and the cards that are drawn meanwhile."""

    def __init__(self, watch: MissionWatch) -> None:
        self.watch = watch
        #: Words of progress, the newest last.
        self.untold: deque[str] = deque(maxlen=_UNTOLD)

    def heard(self, message: ServerMessage) -> None:
        """See Ear."""
        if message.reply_to is None and (words := self.watch.hear(message.payload)) is not None:
            self.untold.append(words)

    def changed(self, change: LinkChange) -> None:
        """See Ear."""

    def ended(self) -> None:
        """See Ear."""
