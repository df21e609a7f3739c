"""A mission under way: handed to the agent, waited for, and stopped if somebody asks; its end comes by one way only."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from typing import TYPE_CHECKING

from sprite.agent.mission_end import ended, failed
from sprite.agent.session import Session
from sprite.agent.turn_result import TurnResult
from sprite.common.tasks import TaskSet
from sprite.database.transcript import NewObservation, Outcome
from sprite.database.workspace import StoredMission
from sprite.errors import AgentError
from sprite.memory.capture.recorder import TurnRecorder
from sprite.protocol.events import AnyEnding, Interrupted

if TYPE_CHECKING:
    from sprite.agent.equipment import Listener

log = logging.getLogger(__name__)

#: A turn that was interrupted has this long to say that it ended; then its process is ended.
INTERRUPT_GRACE_SECONDS = 15.0
#: How long an interrupt waits for the agent to take the mission up: before that there is nothing to stop.
SUBMIT_GRACE_SECONDS = 3.0
#: A turn that the CLI began by itself has this long before a mission is sent into it.
BACKGROUND_TURN_SECONDS = 120.0


class Turn:
    """One mission's turn. `play` it once; what the agent says of it meanwhile is told to `end` and `died`."""

    def __init__(self, mission: StoredMission, session: Session, recorder: TurnRecorder, listener: Listener) -> None:
        self._session = session
        self._recorder = recorder
        self._listener = listener
        self._message_uuid = str(uuid.uuid4())
        self._started_at = time.monotonic()
        self._interrupted = asyncio.Event()
        #: Whether the sprite's own end is what ends it, and nobody's wish.
        self.is_cut_off = False
        #: Gets the CLI's result, or None when there will be none.
        self._ended: asyncio.Future[TurnResult | None] = asyncio.get_running_loop().create_future()
        self._death = ""
        self._is_deaf = False
        self.mission = mission
        #: Whether the mission's words were sent; until then, what the agent does is not the mission's.
        self.asked = False
        #: What the agent has said in it.
        self.texts: list[str] = []
        #: What it has cost in US dollars, once the CLI has said so.
        self.cost_usd: float | None = None
        #: What the log has of it, once it has ended.
        self.observation: NewObservation | None = None

    @property
    def is_interrupted(self) -> bool:
        """Whether somebody asked for its end."""
        return self._interrupted.is_set()

    def interrupt(self) -> None:
        """Asks for its end."""
        self._interrupted.set()

    def cut_off(self) -> None:
        """Asks for its end, since the sprite ends; where somebody asked before, it is they who stop it."""
        if not self.is_interrupted:
            self.is_cut_off = True
            self.interrupt()

    def waits_for(self, result: TurnResult) -> bool:
        """Whether a result ends the mission: it took its message in, or (interrupted) it names none at all."""
        if not self.asked or self._ended.done():
            return False
        if self._message_uuid in result.for_messages:
            return True
        return not result.for_messages and not result.by_itself and not self._recorder.in_task_turn

    def end(self, result: TurnResult | None) -> None:
        """The turn has ended, by the CLI's word or (None) without one; the first to say so is heard."""
        if not self._ended.done():
            self._ended.set_result(result)

    def died(self, reason: str) -> None:
        """The CLI is gone."""
        if not self._ended.done():
            self._death = reason
            self._ended.set_result(None)

    async def play(self) -> tuple[Outcome, AnyEnding]:
        """Hands the mission to the agent and waits for its end, by whichever way."""
        mission_id = self.mission.id
        result = await self._result()
        if result is None and not self.is_interrupted and not self._recorder.has_taken_up:
            # The CLI had died while idle; nothing of this mission has reached it.
            self._ended = asyncio.get_running_loop().create_future()
            result = await self._result()
        if result is None:
            if self.is_interrupted:
                return "interrupted", Interrupted(mission_id)
            return "error", failed(mission_id, AgentError(self._death))
        self.cost_usd = self._session.cost_of_turn(result.total_cost_usd)
        if result.outcome == "interrupted" and self.mission.origin == "schedule" and not self.is_interrupted:
            # A signal to the whole group of processes reaches the CLI first; nobody has stopped it.
            return "error", failed(mission_id, AgentError("The agent was stopped from outside."))
        duration_ms = int((time.monotonic() - self._started_at) * 1000)
        return result.outcome, ended(mission_id, result, self.texts, self.cost_usd, duration_ms)

    async def _result(self) -> TurnResult | None:
        await self._ask()
        async with TaskSet() as tasks:
            tasks.start(self._stop_when_asked(), "interrupt")
            result = await self._ended
        if self._is_deaf:
            # Else it would go on with what somebody has stopped, unseen, until the next mission.
            await self._session.end_process()
        return result

    async def _ask(self) -> None:
        if self.is_interrupted:
            self.end(None)
            return
        conversation = await self._session.connected(self._listener)
        # A turn of the CLI's own would swallow the mission: one observation each needs one turn each.
        async with TaskSet() as tasks:
            tasks.start(self._recorder.quiet(BACKGROUND_TURN_SECONDS), "quiet")
            tasks.start(self._interrupted.wait(), "interrupted")
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if self.is_interrupted:
            self.end(None)
            return
        self.asked = True
        try:
            await conversation.ask(self.mission.text, self._message_uuid)
        except AgentError as error:
            await self._listener.died(str(error))

    async def _stop_when_asked(self) -> None:
        await self._interrupted.wait()
        await self._recorder.taken_up(SUBMIT_GRACE_SECONDS)
        conversation = self._session.conversation
        if conversation is None:
            return
        try:
            # What an earlier turn left at work is none of this one's.
            await conversation.interrupt(spare_background=True)
            await asyncio.sleep(INTERRUPT_GRACE_SECONDS)
            log.warning("the interrupted turn did not end; its process is replaced")
        except AgentError as error:
            log.warning("%s", error)
        # The turn waits for the CLI's word; without one, the mission is ended here, and the CLI with it.
        self._is_deaf = True
        self.end(None)
