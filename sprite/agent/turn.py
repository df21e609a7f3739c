"""A running mission: send it to the agent, wait for it, and stop it on request. It ends in one way only."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from typing import TYPE_CHECKING

from sprite.agent.mission_end import TurnResult, ended, failed
from sprite.agent.session import Session
from sprite.capture.recorder import TurnRecorder
from sprite.common.tasks import TaskSet
from sprite.errors import AgentError
from sprite.log.transcript import NewObservation, Outcome
from sprite.protocol.events import AnyEnding, Interrupted
from sprite.workspace.database import StoredMission

if TYPE_CHECKING:
    from sprite.agent.options import Listener


log = logging.getLogger(__name__)

#: An interrupted turn has this long to end; then its process is ended.
INTERRUPT_GRACE_SECONDS = 15.0
#: Time for which an interrupt waits until the agent takes up the mission; before that it has no effect.
SUBMIT_GRACE_SECONDS = 3.0
#: A turn that the CLI began by itself has this long before a mission is sent into it.
BACKGROUND_TURN_SECONDS = 120.0


class Turn:
    """Run one mission's turn. Call `play` once; report its end meanwhile with `end` or `died`."""

    def __init__(self, mission: StoredMission, session: Session, recorder: TurnRecorder, listener: Listener) -> None:
        self._session = session
        self._recorder = recorder
        self._listener = listener
        self._message_uuid = str(uuid.uuid4())
        self._started_at = time.monotonic()
        self._interrupted = asyncio.Event()
        #: Whether the sprite's shutdown ends it, rather than a person.
        self.is_cut_off = False
        #: Resolves to the CLI's result, or None if there will be none.
        self._ended: asyncio.Future[TurnResult | None] = asyncio.get_running_loop().create_future()
        self._death = ""
        self._is_deaf = False
        self.mission = mission
        #: Whether the mission's message was sent; until then the agent's activity belongs to another turn.
        self.asked = False
        #: The agent's texts in this turn.
        self.texts: list[str] = []
        #: Cost in US dollars, once the CLI has reported it.
        self.cost_usd: float | None = None
        #: The logged observation, once the turn has ended.
        self.observation: NewObservation | None = None

    @property
    def is_interrupted(self) -> bool:
        """Whether somebody asked to stop it."""
        return self._interrupted.is_set()

    def interrupt(self) -> None:
        """Ask the turn to stop."""
        self._interrupted.set()

    def cut_off(self) -> None:
        """Ask the turn to stop because the sprite ends. An earlier request by a person takes precedence."""
        if not self.is_interrupted:
            self.is_cut_off = True
            self.interrupt()

    def waits_for(self, result: TurnResult) -> bool:
        """Return whether a result ends the mission: it names the mission's message, or (interrupted) no message."""
        if not self.asked or self._ended.done():
            return False
        if self._message_uuid in result.for_messages:
            return True
        return not result.for_messages and not result.by_itself and not self._recorder.in_task_turn

    def end(self, result: TurnResult | None) -> None:
        """End the turn with the CLI's result, or None without one. Only the first call counts."""
        if not self._ended.done():
            self._ended.set_result(result)

    def died(self, reason: str) -> None:
        """End the turn because the CLI has died."""
        if not self._ended.done():
            self._death = reason
            self._ended.set_result(None)

    async def play(self) -> tuple[Outcome, AnyEnding]:
        """Send the mission to the agent and wait for its end."""
        mission_id = self.mission.id
        result = await self._result()
        if result is None and not self.is_interrupted and not self._recorder.has_taken_up:
            # The CLI had died while idle, and received nothing of this mission.
            self._ended = asyncio.get_running_loop().create_future()
            result = await self._result()
        if result is None:
            if self.is_interrupted:
                return "interrupted", Interrupted(mission_id)
            return "error", failed(mission_id, AgentError(self._death))
        self.cost_usd = self._session.cost_of_turn(result.total_cost_usd)
        if result.outcome == "interrupted" and self.mission.origin == "schedule" and not self.is_interrupted:
            # A signal to the whole process group reaches the CLI first; no person stopped it.
            return "error", failed(mission_id, AgentError("The agent was stopped from outside."))
        duration_ms = int((time.monotonic() - self._started_at) * 1000)
        return result.outcome, ended(mission_id, result, self.texts, self.cost_usd, duration_ms)

    async def _result(self) -> TurnResult | None:
        await self._ask()
        async with TaskSet() as tasks:
            tasks.start(self._stop_when_asked(), "interrupt")
            result = await self._ended
        if self._is_deaf:
            # Otherwise it would continue unseen what a person stopped, until the next mission.
            await self._session.end_process()
        return result

    async def _ask(self) -> None:
        if self.is_interrupted:
            self.end(None)
            return
        conversation = await self._session.connected(self._listener)
        # A turn that the CLI began would swallow the mission, but each observation needs its own turn.
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
            # Background work of earlier turns does not belong to this one.
            await conversation.interrupt(spare_background=True)
            await asyncio.sleep(INTERRUPT_GRACE_SECONDS)
            log.warning("the interrupted turn did not end; its process is replaced")
        except AgentError as error:
            log.warning("%s", error)
        # The turn waits for the CLI's result; without one, end the mission here and then the CLI.
        self._is_deaf = True
        self.end(None)
