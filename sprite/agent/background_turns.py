"""Turns that the agent begins by itself when background work ends. Each is a mission like any other.

A turn begins and ends when the recorder reports it, so it ends exactly once. The CLI, a merged mission, the CLI's
death or the session's end may close it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from sprite.agent.background import Unattended
from sprite.agent.mission_end import BUDGET_USED_UP, TurnResult, cut_off, ended, failed, rows, used_tools
from sprite.agent.session import Session
from sprite.capture.recorder import TurnRecorder
from sprite.common.tasks import TaskSet
from sprite.errors import AgentError
from sprite.log.transcript import NewObservation
from sprite.protocol.events import AnyAgentEvent, AnyEnding, Complete, Failed, Interrupted, Started
from sprite.protocol.shapes import BackgroundWork, Stopped
from sprite.workspace.database import Effect, TurnBegan

log = logging.getLogger(__name__)

#: An interrupted turn has this long to end; then its process is ended.
INTERRUPT_GRACE_SECONDS = 15.0
#: Time for which an interrupt waits until background work has stopped.
STOP_SECONDS = 5.0


class OwnTurn:
    """A running turn that the agent began by itself."""

    def __init__(self, turn_id: str) -> None:
        self.id = turn_id
        self.started_at = time.monotonic()
        self.texts: list[str] = []
        #: End of the turn, if the CLI reports it.
        self.result: TurnResult | None = None
        self.death = ""
        self.is_interrupted = False
        #: Code and text of the limit that ended it, if no person did.
        self.bound: tuple[str, str] | None = None
        self.over = asyncio.Event()


class BackgroundTurns:
    """Run the agent's own turns. `publish` emits an event with its effects; `after_end` is awaited after each end.

    `on_replaced` gets the reason when the process was ended to stop a turn, because a mission may have been sent
    there. `on_paused` is called when a turn was refused or stopped and the agent waits for the person.
    """

    def __init__(
        self,
        session: Session,
        recorder: TurnRecorder,
        unattended: Unattended,
        *,
        publish: Callable[[AnyAgentEvent, list[Effect]], None],
        after_end: Callable[[], Awaitable[None]],
        on_replaced: Callable[[str], None],
        on_paused: Callable[[], None],
    ) -> None:
        self._session = session
        self._recorder = recorder
        self._unattended = unattended
        self._publish = publish
        self._after_end = after_end
        self._on_replaced = on_replaced
        self._on_paused = on_paused
        self._turns: dict[str, OwnTurn] = {}
        self._guards = TaskSet()
        recorder.watch_tasks(self._may_begin, self._began, self._ended)

    @property
    def current(self) -> OwnTurn | None:
        """The running turn, if any."""
        return self._turns.get(self._recorder.task_id or "")

    async def end(self, result: TurnResult) -> None:
        """Handle the end of the turn, as reported by the CLI."""
        if (turn := self.current) is not None:
            turn.result = result
        await self._recorder.close_task(result.outcome)

    async def died(self, reason: str) -> None:
        """Close the turn when the CLI has died, because no result will come."""
        if (turn := self.current) is not None:
            turn.death = reason
        await self._recorder.close_task("error")

    async def stop(self, *, background: bool) -> list[Stopped]:
        """Stop the running turn and, if requested, all background work. Return what was stopped."""
        turn = self.current
        stopped = []
        if turn is not None:
            turn.is_interrupted = True
            self._guards.start(self._end_the_deaf(turn), "interrupt")
            stopped.append(Stopped(turn.id, "turn"))
        works = self._session.background.works() if background else []
        return stopped + await self._stop_all(works, turn)

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
        try:
            async with asyncio.timeout(INTERRUPT_GRACE_SECONDS):
                await turn.over.wait()
        except TimeoutError:
            log.warning("a turn that the agent had begun by itself did not stop; its process is replaced")
            await self._replace_process()

    async def _replace_process(self) -> None:
        await self._session.end_process()
        self._on_replaced("The agent's process did not stop when asked and was ended.")
        await self._recorder.close_task("interrupted")

    async def _end_the_endless(self, turn: OwnTurn) -> None:
        seconds = self._unattended.turn_seconds
        try:
            async with asyncio.timeout(seconds):
                await turn.over.wait()
        except TimeoutError:
            hours = f"{seconds / 3600:.3g} hours"
            words = f"Sprite had gone on by itself for {hours} and was stopped. Say so if it should go on."
            turn.bound = ("too_long", words)
            await self.stop(background=False)

    def paid(self, usd: float) -> None:
        """Record spending without a mission; stop the spending work if the limit is reached."""
        if self._unattended.paid(usd):
            self._on_paused()
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

    # --- what the recorder says ---

    def _may_begin(self) -> bool:
        was_paused = self._unattended.paused is not None
        may_begin = self._unattended.may_begin()
        if not may_begin and not was_paused:
            self._on_paused()
        return may_begin

    def _began(self, turn_id: str) -> None:
        turn = self._turns[turn_id] = OwnTurn(turn_id)
        self._guards.start(self._end_the_endless(turn), "own turn bound")
        self._publish(Started(turn_id, "agent"), [TurnBegan(turn_id, "agent", self._session.id)])

    async def _ended(self, observation: NewObservation) -> None:
        turn = self._turns.pop(observation.mission_id or "", None)
        if turn is None:
            return
        turn.over.set()
        event = self._event(turn, observation)
        effects = rows(
            turn.id,
            "error" if turn.bound is not None else observation.outcome,
            "\n\n".join(turn.texts),
            event,
            origin="agent",
            tools=used_tools(observation.tool_calls),
        )
        self._session.acted()
        if isinstance(event, Failed) and event.code == BUDGET_USED_UP:
            self._unattended.pause("budget", event.message)
            self._on_paused()
        self._publish(event, effects)
        await self._after_end()

    def _event(self, turn: OwnTurn, observation: NewObservation) -> AnyEnding:
        if turn.bound is not None:
            return Failed(turn.id, *turn.bound, retryable=False)
        duration_ms = int((time.monotonic() - turn.started_at) * 1000)
        if turn.result is not None:
            cost = self._session.cost_of_turn(turn.result.total_cost_usd)
            return ended(turn.id, turn.result, turn.texts, cost, duration_ms)
        if observation.outcome == "complete":
            # A mission was merged into it, so the following events and the cost belong to the mission.
            return Complete(turn.id, "\n\n".join(turn.texts), None, None, duration_ms)
        if observation.outcome == "interrupted":
            return Interrupted(turn.id)
        if observation.outcome == "crashed":
            return cut_off(turn.id, "agent")
        return failed(turn.id, AgentError(turn.death))
