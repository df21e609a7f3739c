"""Running turns: a mission's, and those that the agent begins by itself when background work ends."""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from typing import TYPE_CHECKING

from sprite.agent.background import Unattended
from sprite.agent.mission_end import TurnResult, cut_off, ended, failed, rows, settled_and_estimated, used_tools
from sprite.agent.session import Session
from sprite.capture.recorder import TurnRecorder
from sprite.common.tasks import TaskSet, is_set_within
from sprite.errors import AgentError
from sprite.log.transcript import NewObservation, Outcome
from sprite.protocol.events import AnyEnding, Complete, Failed, Interrupted, Started
from sprite.protocol.shapes import BackgroundWork, FoundHit, Stopped
from sprite.workspace.database import StoredMission, TurnBegan

if TYPE_CHECKING:
    from sprite.agent.runtime import AgentRuntime


log = logging.getLogger(__name__)

#: After an abort that nobody asked for, wait so long for the signal that stops the sprite itself.
OUTSIDE_GRACE_SECONDS = 1.0
#: An interrupted turn has this long to end; then its process is ended.
INTERRUPT_GRACE_SECONDS = 15.0
#: Time for which an interrupt waits until the agent takes up the mission; before that it has no effect.
SUBMIT_GRACE_SECONDS = 3.0
#: A turn that the CLI began by itself has this long before a mission is sent into it.
BACKGROUND_TURN_SECONDS = 120.0


class Turn:
    """Run one mission's turn. Call `play` once; while it runs, report the end of the turn with `end`."""

    def __init__(
        self, mission: StoredMission, session: Session, recorder: TurnRecorder, listener: AgentRuntime
    ) -> None:
        self._session = session
        self._recorder = recorder
        self._listener = listener
        self._message_uuid = str(uuid.uuid4())
        self._started_at = time.monotonic()
        #: Set to ask the turn to stop.
        self.interrupted = asyncio.Event()
        #: Whether the sprite's shutdown ends it, rather than a person.
        self.is_cut_off = False
        #: Resolves to the CLI's result, or None if there will be none.
        self._ended: asyncio.Future[TurnResult | None] = asyncio.get_running_loop().create_future()
        self._death = AgentError()
        self._is_deaf = False
        self.mission = mission
        #: Whether the mission's message was sent; until then the agent's activity belongs to another turn.
        self.asked = False
        #: The agent's texts in this turn.
        self.texts: list[str] = []
        #: The hits of its searches of memory.
        self.found: list[FoundHit] = []
        #: Cost in US dollars, once the CLI has reported it.
        self.cost_usd: float | None = None
        self.result: TurnResult | None = None
        #: The same as counted from its stream.
        self.streamed_usd = 0.0
        #: The logged observation, once the turn has ended.
        self.observation: NewObservation | None = None

    def cut_off(self) -> None:
        """Ask the turn to stop because the sprite ends. An earlier request by a person takes precedence."""
        if not self.interrupted.is_set():
            self.is_cut_off = True
            self.interrupted.set()

    def waits_for(self, result: TurnResult) -> bool:
        """Return whether a result ends this mission: it names the mission's message or, if interrupted, no message."""
        if not self.asked or self._ended.done():
            return False
        if self._message_uuid in result.for_messages:
            return True
        return not result.for_messages and not result.by_itself and not self._recorder.in_task_turn

    def end(self, result: TurnResult | None, death: AgentError | None = None) -> None:
        """End the turn with the CLI's result, or None without one, as after its `death`. Only the first call counts."""
        if not self._ended.done():
            self._death = death or self._death
            self._ended.set_result(result)

    async def play(self) -> tuple[Outcome, AnyEnding]:
        """Send the mission to the agent and wait for its end."""
        mission_id = self.mission.id
        result = await self._result()
        if result is None and not self.interrupted.is_set() and not self._recorder.taken_up.is_set():
            # The CLI had died while idle, and received nothing of this mission.
            self._ended = asyncio.get_running_loop().create_future()
            result = await self._result()
        if result is None:
            if self.interrupted.is_set():
                return "interrupted", Interrupted(mission_id)
            return "error", failed(mission_id, self._death)
        self.result, self.cost_usd = result, self._session.cost_of_turn(result.total_cost_usd)
        if result.outcome == "crashed":
            # Ctrl-C signals the whole process group, and the CLI may abort before the sprite begins to stop.
            await is_set_within(self.interrupted, OUTSIDE_GRACE_SECONDS)
            if self.mission.origin == "schedule":
                return "error", failed(mission_id, AgentError("The agent was stopped from outside."))
            return "crashed", cut_off(mission_id, self.mission.origin)
        duration_ms = int((time.monotonic() - self._started_at) * 1000)
        return result.outcome, ended(mission_id, result, self.texts, duration_ms, self.cost_usd, self.streamed_usd)

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
        if self.interrupted.is_set():
            self.end(None)
            return
        conversation = await self._session.connected(self._listener)
        # A turn that the CLI began would swallow the mission, but each observation needs its own turn.
        async with TaskSet() as tasks:
            tasks.start(self._recorder.quiet(BACKGROUND_TURN_SECONDS), "quiet")
            tasks.start(self.interrupted.wait(), "interrupted")
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if self.interrupted.is_set():
            self.end(None)
            return
        self.asked = True
        try:
            await conversation.ask(self.mission.text, self._message_uuid, self.mission.images)
        except AgentError as error:
            await self._listener.died(error)

    async def _stop_when_asked(self) -> None:
        await self.interrupted.wait()
        await is_set_within(self._recorder.taken_up, SUBMIT_GRACE_SECONDS)
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


#: Time for which an interrupt waits until background work has stopped.
STOP_SECONDS = 5.0


class OwnTurn:
    """A running turn that the agent began by itself."""

    def __init__(self, turn_id: str) -> None:
        self.id = turn_id
        self.started_at = time.monotonic()
        self.texts: list[str] = []
        self.streamed_usd = 0.0
        #: End of the turn, if the CLI reports it.
        self.result: TurnResult | None = None
        self.death = AgentError()
        self.is_interrupted = False
        #: Code and text of the limit that ended it, if no person did.
        self.bound: tuple[str, str] | None = None
        self.over = asyncio.Event()


class BackgroundTurns:
    """Run the turns that the agent begins by itself."""

    def __init__(
        self, session: Session, recorder: TurnRecorder, unattended: Unattended, listener: AgentRuntime
    ) -> None:
        self._session = session
        self._recorder = recorder
        self._unattended = unattended
        self._listener = listener
        self._turns: dict[str, OwnTurn] = {}
        self._guards = TaskSet()
        recorder.may_begin, recorder.task_began, recorder.task_ended = self._may_begin, self._began, self._ended

    @property
    def current(self) -> OwnTurn | None:
        """The running turn, if any."""
        return self._turns.get(self._recorder.task_id or "")

    async def end(self, result: TurnResult) -> None:
        """Handle the end of the agent's own turn, as reported by the CLI."""
        if (turn := self.current) is not None:
            turn.result = result
        await self._recorder.close_task(result.outcome)

    async def died(self, reason: AgentError) -> None:
        """Close the agent's own turn when the CLI has died, because no result will come."""
        if (turn := self.current) is not None:
            turn.death = reason
        await self._recorder.close_task("error")

    async def stop(self, *, background: bool) -> list[Stopped]:
        """Stop the agent's own turn and, if requested, all background work. Return what was stopped."""
        turn = self.current
        stopped = []
        if turn is not None:
            turn.is_interrupted = True
            self._guards.start(self._end_the_deaf(turn), "interrupt")
            stopped.append(Stopped(turn.id, "turn"))
        return stopped + await self._stop_all(self._session.background.works() if background else [], turn)

    async def _stop_all(self, works: list[BackgroundWork], turn: OwnTurn | None) -> list[Stopped]:
        conversation = self._session.conversation
        if conversation is None:
            return []
        ends = {work.id: self._session.background.stopping(work.id) for work in works}
        try:
            # The interrupt stops agents: an agent stopped by id would begin a turn to report it.
            for work in works:
                if work.kind != "agent":
                    await conversation.stop_task(work.id)
            if turn is not None or any(work.kind == "agent" for work in works):
                await conversation.interrupt(spare_background=not works)
        except AgentError as error:
            log.warning("%s", error)
            await self._replace_process()
        if ends:
            await asyncio.wait(ends.values(), timeout=STOP_SECONDS)
        # Leave out work that had ended by itself by then.
        return [Stopped(work.id, work.kind) for work in works if (end := ends[work.id]).done() and end.result()]

    async def _end_the_deaf(self, turn: OwnTurn) -> None:
        if not await is_set_within(turn.over, INTERRUPT_GRACE_SECONDS):
            log.warning("a turn that the agent had begun by itself did not stop; its process is replaced")
            await self._replace_process()

    async def _replace_process(self) -> None:
        await self._session.end_process()
        # A mission may have been sent to the process.
        self._listener.process_replaced(AgentError("The agent's process did not stop when asked and was ended."))
        await self._recorder.close_task("interrupted")

    async def _end_the_endless(self, turn: OwnTurn) -> None:
        seconds = self._unattended.turn_seconds
        if not await is_set_within(turn.over, seconds):
            hours = f"{seconds / 3600:.3g} hours"
            words = f"Sprite worked by itself for {hours} and was stopped. Tell it if it should continue."
            turn.bound = ("too_long", words)
            await self.stop(background=False)

    def paid(self, usd: float) -> None:
        """Add to the cost of work without a mission. If the limit is reached, stop that work."""
        if (turn := self.current) is not None:
            turn.streamed_usd += usd
        if self._unattended.paid(usd):
            self._listener.tell_session()
            self._guards.start(self._stop_spending(), "stop spending")

    async def _stop_spending(self) -> None:
        """Stop the current turn and background agents. Commands cost nothing and continue."""
        turn, paused = self.current, self._unattended.paused
        if turn is not None and paused is not None:
            turn.bound = ("paused", paused.why)
            await self.stop(background=False)
        agents = [work for work in self._session.background.works() if work.kind == "agent"]
        if agents:
            await self._stop_all(agents, None)

    def _may_begin(self) -> bool:
        was_paused = self._unattended.paused is not None
        may_begin = self._unattended.may_begin()
        if not may_begin and not was_paused:
            self._listener.tell_session()
        return may_begin

    def _began(self, turn_id: str) -> None:
        turn = self._turns[turn_id] = OwnTurn(turn_id)
        self._guards.start(self._end_the_endless(turn), "own turn bound")
        self._listener.publish(
            Started(turn_id, "agent", session_id=self._session.id), [TurnBegan(turn_id, "agent", self._session.id)]
        )

    async def _ended(self, observation: NewObservation) -> None:
        turn = self._turns.pop(observation.mission_id or "", None)
        if turn is None:
            return
        turn.over.set()
        cost_usd = None if turn.result is None else self._session.cost_of_turn(turn.result.total_cost_usd)
        event = self._event(turn, observation, cost_usd)
        event.changes = await self._listener.count_changes(turn.id)
        effects = rows(
            turn.id,
            "error" if turn.bound is not None else observation.outcome,
            "\n\n".join(turn.texts),
            event,
            origin="agent",
            tools=used_tools(observation.tool_calls),
            cost=settled_and_estimated(turn.result, cost_usd, turn.streamed_usd),
        )
        self._session.acted()
        if self._unattended.ended(event):
            self._listener.tell_session()
        self._listener.publish(event, effects)
        await self._listener.turn_ended()

    def _event(self, turn: OwnTurn, observation: NewObservation, cost_usd: float | None) -> AnyEnding:
        if turn.bound is not None:
            return Failed(turn.id, *turn.bound, retryable=False)
        duration_ms = int((time.monotonic() - turn.started_at) * 1000)
        if observation.outcome == "crashed":
            return cut_off(turn.id, "agent")
        if turn.result is not None:
            return ended(turn.id, turn.result, turn.texts, duration_ms, cost_usd, turn.streamed_usd)
        if observation.outcome == "complete":
            # A mission was merged into it, so the following events and the cost belong to the mission.
            return Complete(turn.id, "\n\n".join(turn.texts), None, None, duration_ms)
        if observation.outcome == "interrupted":
            return Interrupted(turn.id)
        return failed(turn.id, turn.death)
