"""The runtime: missions in, one at a time; events out; one session after another. It belongs to the server.

One task owns the conversation. A mission ends exactly once, with `complete`, `interrupted` or `error`, and its
observation is in the log before anyone is told. Knows no sockets and no SQL.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from sprite.agent.permissions import PermissionDesk
from sprite.agent.turn_result import TurnResult
from sprite.config import Settings
from sprite.database.transcript import Observation, Outcome, TranscriptDB
from sprite.database.workspace import ChatAdded, Effect, MissionMoved, MissionStatus, StoredMission, WorkspaceDB
from sprite.errors import AgentError, PeerError, SpriteError, StorageError
from sprite.feed import Feed
from sprite.memory.capture.recorder import TurnRecorder
from sprite.memory.processor import ObservationProcessor
from sprite.memory.recall.boot_prompt import BootPrompt
from sprite.privacy.confidences import Confidences
from sprite.protocol.messages import (
    CHAT_TEXT_CHARS,
    AgentEvent,
    ChatSaid,
    SessionState,
)

if TYPE_CHECKING:
    from sprite.agent.conversation import Conversation
    from sprite.agent.equipment import Agent

log = logging.getLogger(__name__)
_T = TypeVar("_T")

#: A conversation that has rested this long is over: the next mission starts a new session.
IDLE_SECONDS = 12 * 3600.0
#: Missions that may wait; more are refused, so that nobody fills the disk unseen.
MAX_QUEUED = 100
#: How long a new session waits for the old one to be curated; what is not, the boot prompt holds as turns.
SESSION_FLUSH_SECONDS = 30.0
#: Under the CLI's own timeout for hooks (60 s), which would otherwise abandon the callback.
COMPACTION_FLUSH_SECONDS = 45.0
SHUTDOWN_FLUSH_SECONDS = 20.0
#: A turn that was interrupted has this long to say that it ended; then its process is ended.
INTERRUPT_GRACE_SECONDS = 15.0
#: How long an interrupt waits for the agent to take the mission up: before that there is nothing to stop.
SUBMIT_GRACE_SECONDS = 3.0
#: Streamed text is sent this often at the most: faster than anyone reads, slower than a fast model's words.
DELTA_SECONDS = 0.015
#: A turn that the CLI began by itself has this long before a mission is sent into it.
BACKGROUND_TURN_SECONDS = 120.0

_STATUS: dict[Outcome, MissionStatus] = {
    "complete": "complete",
    "interrupted": "interrupted",
    "error": "error",
    "max_turns": "error",
    "crashed": "error",
}
CRASHED_MESSAGE = "The sprite was stopped in the middle of this. What had happened by then is kept; send it again."


@dataclass(slots=True)
class _Turn:
    """The mission under way. `ended` gets the CLI's result, or None when there will be none."""

    mission: StoredMission
    message_uuid: str
    ended: asyncio.Future[TurnResult | None]
    started_at: float = field(default_factory=time.monotonic)
    interrupted: asyncio.Event = field(default_factory=asyncio.Event)
    asked: bool = False
    texts: list[str] = field(default_factory=list)
    death: str = ""


@dataclass(slots=True)
class _Errand:
    """Something that takes its turn among the missions, and whoever waits for it."""

    work: Callable[[], Awaitable[Any]]
    done: asyncio.Future[Any]


class AgentRuntime:
    """Runs missions serially and keeps the session."""

    def __init__(
        self,
        settings: Settings,
        transcript: TranscriptDB,
        workspace: WorkspaceDB,
        feed: Feed,
        recorder: TurnRecorder,
        processor: ObservationProcessor,
        boot_prompt: BootPrompt,
        desk: PermissionDesk,
        confidences: Confidences,
        load_agent: Callable[[], Awaitable[Agent]],
    ) -> None:
        self._settings = settings
        self._transcript = transcript
        self._workspace = workspace
        self._feed = feed
        self._recorder = recorder
        self._processor = processor
        self._boot_prompt = boot_prompt
        self._desk = desk
        self._confidences = confidences
        self._load_agent = load_agent
        self._inbox: deque[StoredMission | _Errand] = deque()
        self._arrived = asyncio.Event()
        self._turn: _Turn | None = None
        self._conversation: Conversation | None = None
        self._session_id: str | None = None
        self._session_started_at: float | None = None
        self._session_turns = 0
        self._cli_session_id: str | None = None
        self._cli_cost_usd = 0.0
        self._last_active = 0.0
        self._compacted = False
        self._delta: AgentEvent | None = None
        self._delta_timer: asyncio.TimerHandle
        self._stopping = False
        #: Waiting missions that a person took back: each ends as interrupted when its turn comes.
        self._taken_back: set[str] = set()
        #: The agent's model, as set or as the CLI says; None until either is known.
        self.model: str | None = settings.model

    # --- what the gateway asks for ---

    @property
    def running_mission_id(self) -> str | None:
        """The mission under way."""
        return self._turn.mission.id if self._turn else None

    @property
    def is_busy(self) -> bool:
        """Whether a mission runs or waits."""
        return self._turn is not None or bool(self._inbox)

    def session_state(self) -> SessionState:
        """The session as clients see it."""
        queued = sum(isinstance(item, StoredMission) for item in self._inbox)
        return SessionState(
            session_id=self._session_id,
            started_at=self._session_started_at,
            turns=self._session_turns,
            running_mission_id=self.running_mission_id,
            queued=queued,
        )

    def queued(self) -> list[str]:
        """The missions that wait, in order, without those that were taken back."""
        waiting = [item.id for item in self._inbox if isinstance(item, StoredMission)]
        return [mission_id for mission_id in waiting if mission_id not in self._taken_back]

    async def submit(self, mission_id: str, text: str, stack_id: str | None) -> int | None:
        """Takes a mission, durably; returns how many are before it, or None if its id is known already."""
        if len(self._inbox) >= MAX_QUEUED:
            raise PeerError(f"{MAX_QUEUED} missions wait already; send this one again later.", code="queue_full")
        # The agent gets the words as they are; what is written down, and would run after a crash, is discreet.
        self._confidences.hear(text)
        shown = self._confidences.text(text)
        if not await self._workspace.accept_mission(mission_id, shown, stack_id):
            return None
        # Other people's screens follow.
        self._feed.publish(ChatSaid(mission_id, "user", shown[:CHAT_TEXT_CHARS], time.time()))
        before = len(self._inbox) + (self._turn is not None)
        self._put(StoredMission(mission_id, text, stack_id, "queued", None))
        return before

    async def heartbeat(self) -> None:
        """Returns when the missions before it have ended."""
        await self._in_turn(_nothing)

    async def new_session(self) -> None:
        """Ends the session after the missions before it, and curates what waits."""
        await self._in_turn(lambda: self._end_session(SESSION_FLUSH_SECONDS))

    async def at_rest(self, work: Callable[[], Awaitable[_T]]) -> _T:
        """Runs something after the missions before it, with the session ended and nothing of the agent's running."""

        async def rest() -> _T:
            await self._close_session()
            async with self._processor.paused():
                return await work()

        value: _T = await self._in_turn(rest)
        return value

    async def _in_turn(self, work: Callable[[], Awaitable[Any]]) -> Any:
        errand = _Errand(work, asyncio.get_running_loop().create_future())
        self._put(errand)
        return await errand.done

    def interrupt(self, mission_id: str | None) -> str:
        """Stops the running mission, or takes back the named one that waits; its id. PeerError if there is none."""
        turn = self._turn
        if mission_id is not None and mission_id in self.queued():
            self._taken_back.add(mission_id)
            return mission_id
        if turn is None or (mission_id is not None and mission_id != turn.mission.id):
            raise PeerError("Nothing is running that could be stopped.", code="not_running")
        turn.interrupted.set()
        self._desk.withdraw_all()
        return turn.mission.id

    # --- life ---

    async def restore(self) -> None:
        """Takes up what an earlier process left: its session, its queue, and missions it was killed in."""
        await self._recorder.recover()
        for mission in await self._workspace.open_missions():
            turn = await self._transcript.turn_of(mission.id)
            if turn is None and mission.session_id is not None:
                # Killed between its start and its first hook: nothing but the words is known.
                self._recorder.begin_session(mission.session_id)
                self._recorder.open_mission(mission.id, mission.text)
                await self._recorder.close_mission("crashed")
                turn = await self._transcript.turn_of(mission.id)
            if turn is None:
                self._put(mission)
            else:
                self._end_left_open(mission, turn)
        session = await self._transcript.open_session()
        if session is not None:
            self._session_id = session.id
            self._session_started_at = session.started_at
            self._session_turns = session.message_count
            self._cli_session_id = session.cli_session_id
            self._last_active = session.last_active_at
            self._recorder.begin_session(session.id)

    async def run(self) -> None:
        """Works the inbox until cancelled; call `stop` first for a clean end."""
        while not self._stopping:
            await self._arrived.wait()
            if not self._inbox:
                self._arrived.clear()
                continue
            item = self._inbox.popleft()
            try:
                await (self._run_mission(item) if isinstance(item, StoredMission) else self._run(item))
            except Exception:
                # A fault with one must not end the work on all that follow; it is ours, so it is logged whole.
                log.exception("the inbox: %s failed", item)
                self._turn = None
        try:
            await self._end_session(SHUTDOWN_FLUSH_SECONDS)
        except SpriteError as error:
            log.error("the session could not be closed and stays open: %s", error)  # noqa: TRY400 - said in words

    def stop(self) -> None:
        """Lets `run` end: the turn is interrupted and stored, the session ends, memory is flushed."""
        self._stopping = True
        self._arrived.set()
        if self._turn is not None:
            self._turn.interrupted.set()
            self._desk.withdraw_all()

    def _put(self, item: StoredMission | _Errand) -> None:
        self._inbox.append(item)
        self._arrived.set()

    async def _run(self, errand: _Errand) -> None:
        try:
            value = await errand.work()
            # The missions before it have ended, and whoever asked has heard so before this is answered.
            await self._feed.drain()
        except Exception as error:  # noqa: BLE001 - handed on whole
            # Whoever waits for it has to hear of it; the missions after it run.
            if not errand.done.done():
                errand.done.set_exception(error)
            return
        if not errand.done.done():
            errand.done.set_result(value)

    # --- a mission ---

    async def _run_mission(self, mission: StoredMission) -> None:
        turn = _Turn(mission, str(uuid.uuid4()), asyncio.get_running_loop().create_future())
        self._turn = turn
        if mission.id in self._taken_back:
            self._taken_back.discard(mission.id)
            turn.interrupted.set()
        try:
            await self._begin_session()
            self._feed.publish(
                AgentEvent(mission.id, "started"), [MissionMoved(mission.id, "running", self._session_id)]
            )
            self._recorder.open_mission(mission.id, mission.text)
            outcome, event = await self._play(turn)
        except Exception as error:
            # Whatever went wrong, the mission has to end, and the next one has to run.
            if not isinstance(error, SpriteError):
                log.exception("a mission failed unexpectedly")
            outcome, event = "error", _failed(mission.id, error)
        await self._recorder.close_mission(outcome, event.message if isinstance(event.message, str) else "")
        await self._end(mission, outcome, event)

    async def _play(self, turn: _Turn) -> tuple[Outcome, AgentEvent]:
        """Hands the mission to the agent and waits for its end, by whichever way."""
        mission = turn.mission
        result = await self._result_of(turn)
        if result is None and not turn.interrupted.is_set() and not self._recorder.has_taken_up:
            # It had died unseen while nobody was talking to it; nothing of this mission has reached it.
            turn.ended = asyncio.get_running_loop().create_future()
            result = await self._result_of(turn)
        if result is None:
            if turn.interrupted.is_set():
                return "interrupted", AgentEvent(mission.id, "interrupted")
            return "error", _failed(mission.id, AgentError(turn.death))
        if result.outcome == "interrupted":
            return result.outcome, AgentEvent(mission.id, "interrupted")
        if result.failure is not None:
            code, words, retryable = result.failure
            return result.outcome, AgentEvent(mission.id, "error", code=code, message=words, retryable=retryable)
        return result.outcome, AgentEvent(
            mission.id,
            "complete",
            text=result.text or "\n\n".join(turn.texts),
            usage=result.usage,
            cost_usd=self._turn_cost(result),
            duration_ms=int((time.monotonic() - turn.started_at) * 1000),
        )

    async def _result_of(self, turn: _Turn) -> TurnResult | None:
        await self._ask(turn)
        stopping = asyncio.create_task(self._stop_when_asked(turn), name="interrupt")
        try:
            return await turn.ended
        finally:
            stopping.cancel()

    async def _ask(self, turn: _Turn) -> None:
        if turn.interrupted.is_set():
            turn.ended.set_result(None)
            return
        conversation = await self._connected()
        # A turn of the CLI's own would swallow the mission: one observation each needs one turn each.
        quiet = asyncio.create_task(self._recorder.quiet(BACKGROUND_TURN_SECONDS), name="quiet")
        interrupted = asyncio.create_task(turn.interrupted.wait(), name="interrupted")
        await asyncio.wait({quiet, interrupted}, return_when=asyncio.FIRST_COMPLETED)
        quiet.cancel()
        interrupted.cancel()
        if turn.interrupted.is_set():
            turn.ended.set_result(None)
            return
        turn.asked = True
        try:
            await conversation.ask(turn.mission.text, turn.message_uuid)
        except AgentError as error:
            await self._on_death(str(error))

    async def _stop_when_asked(self, turn: _Turn) -> None:
        await turn.interrupted.wait()
        await self._recorder.taken_up(SUBMIT_GRACE_SECONDS)
        conversation = self._conversation
        if conversation is None:
            return
        try:
            await conversation.interrupt()
            await asyncio.sleep(INTERRUPT_GRACE_SECONDS)
            log.warning("the interrupted turn did not end; its process is replaced")
        except AgentError as error:
            log.warning("%s", error)
        # The turn waits for the CLI's word; without one, the mission is ended here and the CLI with the next.
        conversation.alive = False
        if not turn.ended.done():
            turn.ended.set_result(None)

    async def _end(self, mission: StoredMission, outcome: Outcome, event: AgentEvent) -> None:
        effects: list[Effect] = [MissionMoved(mission.id, _STATUS[outcome])]
        said = "\n\n".join(self._turn.texts) if self._turn else ""
        if said.strip():
            effects.append(ChatAdded("assistant", said, mission.id))
        if event.event == "error":
            effects.append(ChatAdded("error", str(event.message), mission.id))
        self._session_turns += 1
        self._last_active = time.time()
        self._turn = None
        self._release()
        self._feed.publish(event, effects)
        await self._processor.turn_ended()

    def _end_left_open(self, mission: StoredMission, turn: Observation) -> None:
        """Ends a mission that a killed process had begun, by what the log knows of it."""
        said = turn.agent_response
        event = {
            "complete": AgentEvent(mission.id, "complete", text=said, usage=None, cost_usd=None, duration_ms=0),
            "interrupted": AgentEvent(mission.id, "interrupted"),
        }.get(turn.outcome, AgentEvent(mission.id, "error", code="crashed", message=CRASHED_MESSAGE, retryable=True))
        effects: list[Effect] = [MissionMoved(mission.id, _STATUS[turn.outcome])]
        if said.strip():
            effects.append(ChatAdded("assistant", said, mission.id))
        if event.event == "error":
            effects.append(ChatAdded("error", CRASHED_MESSAGE, mission.id))
        self._feed.publish(event, effects)

    def _turn_cost(self, result: TurnResult) -> float | None:
        """The CLI counts a conversation's cost; a turn's is what was added."""
        if result.total_cost_usd is None:
            return None
        cost = max(0.0, result.total_cost_usd - self._cli_cost_usd)
        self._cli_cost_usd = result.total_cost_usd
        return cost

    # --- sessions ---

    async def _begin_session(self) -> None:
        """Makes sure there is a session, and that it has not rested too long."""
        if self._session_id is not None and time.time() - self._last_active > IDLE_SECONDS:
            await self._end_session(SESSION_FLUSH_SECONDS)
        if self._session_id is None:
            session = await self._transcript.start_session(str(uuid.uuid4()))
            self._session_id, self._session_started_at = session.id, session.started_at
            self._session_turns, self._last_active = 0, session.started_at
            self._cli_session_id = None
        self._recorder.begin_session(self._session_id)

    async def _end_session(self, flush_seconds: float) -> None:
        await self._close_session()
        await self._processor.flush_within(flush_seconds)

    async def _close_session(self) -> None:
        await self._close_conversation()
        await self._recorder.close_session()
        if self._session_id is not None:
            await self._transcript.end_sessions()
            self._session_id = self._session_started_at = self._cli_session_id = None
            self._session_turns = 0

    # --- the conversation ---

    async def _connected(self) -> Conversation:
        """The conversation, begun or (after its process died) resumed."""
        if self._conversation is not None and self._conversation.alive:
            return self._conversation
        await self._close_conversation()
        # What an agent that did not stop had begun by itself ends with it.
        await self._recorder.close_task("interrupted")
        agent = await self._load_agent()
        prompt_file = self._settings.boot_prompt
        await self._boot_prompt.write(prompt_file)
        self._compacted = False
        try:
            conversation = await self._connect(agent, resume=self._cli_session_id)
        except AgentError:
            if self._cli_session_id is None:
                raise
            log.warning("the earlier conversation cannot be resumed; the agent goes on from memory")
            self._cli_session_id = None
            conversation = await self._connect(agent, resume=None)
        self._cli_cost_usd = 0.0
        self._conversation = conversation
        return conversation

    async def _connect(self, agent: Agent, resume: str | None) -> Conversation:
        conversation = agent.conversation(
            on_event=self._on_event,
            on_result=self._on_result,
            on_cli_session=self._on_cli_session,
            on_death=self._on_death,
            mission_id=lambda: self.running_mission_id,
            interrupted=lambda: self._turn is not None and self._turn.interrupted.is_set(),
            stack_id=lambda: self._turn.mission.stack_id if self._turn else None,
            before_compaction=self._before_compaction,
            news=self._news,
        )
        try:
            await conversation.connect(resume)
        except AgentError:
            await conversation.close()
            raise
        return conversation

    async def _close_conversation(self) -> None:
        conversation, self._conversation = self._conversation, None
        if conversation is not None:
            await conversation.close()

    async def _before_compaction(self) -> None:
        await self._processor.flush_within(COMPACTION_FLUSH_SECONDS)

    def _news(self) -> str | None:
        """After a compaction the agent has lost sight of its memory: what changed comes with its next prompt."""
        if not self._compacted:
            return None
        self._compacted = False
        return self._boot_prompt.news()

    # --- the stream (called by the conversation's reader, one message after another) ---

    async def _on_event(self, event: AgentEvent) -> None:
        turn = self._turn
        if turn is not None and turn.asked and not self._recorder.in_task_turn:
            event.mission_id = turn.mission.id
            if event.event == "text" and isinstance(event.text, str):
                turn.texts.append(event.text)
        if event.event == "text_delta":
            self._gather(event)
            return
        if event.event == "compacted":
            self._compacted = True
        self._release()
        self._feed.publish(event)

    def _gather(self, delta: AgentEvent) -> None:
        """Holds a piece of text for a moment, so that a fast model does not cost a frame for every word."""
        if self._delta is not None and self._delta.mission_id == delta.mission_id:
            self._delta.text = f"{self._delta.text}{delta.text}"
            return
        self._release()
        self._delta = delta
        self._delta_timer = asyncio.get_running_loop().call_later(DELTA_SECONDS, self._release)

    def _release(self) -> None:
        """Sends the text that is held, if any: it is due, or something else follows it."""
        if self._delta is not None:
            self._delta_timer.cancel()
            self._feed.publish(self._delta, durable=False)
            self._delta = None

    async def _on_cli_session(self, cli_session_id: str, model: str | None) -> None:
        self.model = model or self.model
        if self._session_id is None:
            return
        self._cli_session_id = cli_session_id
        try:
            await self._transcript.link_cli_session(self._session_id, cli_session_id)
        except StorageError as error:
            # The turn goes on; the CLI says its id again with the next one.
            self._feed.warn(error.code, str(error))

    async def _on_result(self, result: TurnResult) -> None:
        turn = self._turn
        waiting = turn is not None and turn.asked and not turn.ended.done()
        if turn is not None and waiting and self._is_for(turn, result):
            await self._recorder.close_mission(result.outcome, result.failure[1] if result.failure else "")
            turn.ended.set_result(result)
        else:
            await self._recorder.close_task(result.outcome)

    def _is_for(self, turn: _Turn, result: TurnResult) -> bool:
        """Whether a result ends the mission: it took its message in, or (interrupted) it names none at all."""
        if turn.message_uuid in result.for_messages:
            return True
        return not result.for_messages and not result.by_itself and not self._recorder.in_task_turn

    async def _on_death(self, reason: str) -> None:
        log.warning("%s", reason)
        if self._turn is not None and not self._turn.ended.done():
            self._turn.death = reason
            self._turn.ended.set_result(None)
        # A turn that the CLI had begun by itself has died with it: nothing else will say that it ended.
        await self._recorder.close_task("error")


async def _nothing() -> None:
    """What a heartbeat does."""


def _failed(mission_id: str, error: Exception) -> AgentEvent:
    code = error.code if isinstance(error, SpriteError) else "internal"
    message = str(error) if isinstance(error, SpriteError) else "Something went wrong inside the sprite; see its log."
    return AgentEvent(mission_id, "error", code=code, message=message, retryable=True)
