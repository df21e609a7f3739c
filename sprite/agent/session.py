"""The session: its row in the log, and the conversation with the agent in which it is held.

Owns which session it is, what it has cost so far, and the CLI's process: begun when a mission needs it, resumed when
it has died, closed with the session, and what the CLI wrote down of it deleted. Knows nothing of missions.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from sprite.agent.background import Background
from sprite.agent.cli_files import clear_cli_files, keep_cli_session
from sprite.config import STAND_IN, Settings
from sprite.database.transcript import Outcome, TranscriptDB
from sprite.errors import AgentError
from sprite.memory.capture.recorder import TurnRecorder
from sprite.memory.recall.boot_prompt import BootPrompt
from sprite.memory.recall.canvas_sight import CanvasSight

if TYPE_CHECKING:
    from sprite.agent.conversation import Conversation
    from sprite.agent.equipment import Agent, Listener

log = logging.getLogger(__name__)

#: A conversation that has rested this long is over: the next mission starts a new session.
IDLE_SECONDS = 12 * 3600.0


class Session:
    """One session after another. `id` is None between them."""

    def __init__(
        self,
        settings: Settings,
        transcript: TranscriptDB,
        recorder: TurnRecorder,
        boot_prompt: BootPrompt,
        load_agent: Callable[[], Awaitable[Agent]],
        background: Background,
        sight: CanvasSight,
    ) -> None:
        self._settings = settings
        self._transcript = transcript
        self._recorder = recorder
        self._boot_prompt = boot_prompt
        self._load_agent = load_agent
        #: What the agent knows of its canvas.
        self.sight = sight
        #: What goes on beside turns, as long as the agent's process lives.
        self.background = background
        self._cli_session_id: str | None = None
        self._cli_cost_usd = 0.0
        self._last_active = 0.0
        self._compacted = False
        #: Whether the conversation was begun ahead of its first mission, which has not come yet.
        self._is_spare = False
        self.id: str | None = None
        self.started_at: float | None = None
        self.turns = 0
        #: The agent's model, as set or as the CLI says; None until either is known.
        self.model: str | None = settings.model
        #: The conversation, from the first mission that needed it to the session's end.
        self.conversation: Conversation | None = None

    @property
    def has_rested(self) -> bool:
        """Whether the session has rested for too long to be gone on with."""
        return self.id is not None and time.time() - self._last_active > IDLE_SECONDS

    async def restore(self) -> None:
        """Takes up the session that an earlier process left open, if any."""
        session = await self._transcript.open_session()
        if session is not None:
            self.id = session.id
            self.started_at = session.started_at
            self.turns = session.message_count
            self._cli_session_id = session.cli_session_id
            self._last_active = session.last_active_at
            self._recorder.begin_session(session.id)
        # A killed process leaves its agent's files; those of the session that is gone on with are needed to resume it.
        folder = self._settings.cli_state
        if self._cli_session_id is None:
            await asyncio.to_thread(clear_cli_files, folder)
        else:
            await asyncio.to_thread(keep_cli_session, folder, self._cli_session_id)

    async def begin(self) -> None:
        """Makes sure there is a session."""
        if self.id is None:
            session = await self._transcript.start_session(str(uuid.uuid4()))
            self.id, self.started_at = session.id, session.started_at
            self.turns, self._last_active = 0, session.started_at
            self._cli_session_id = None
        self._recorder.begin_session(self.id)

    def turn_ended(self) -> None:
        """Counts a mission's turn."""
        self.turns += 1
        self.acted()

    def acted(self) -> None:
        """Something happened in it."""
        self._last_active = time.time()

    async def close(self, outcome: Outcome = "interrupted") -> None:
        """Ends the agent's process, writes what is open, and ends the session; the agent's own files go with it.

        `outcome` is how turns that are still open end.
        """
        await self.end_process()
        await self._recorder.close_session(outcome)
        if self.id is not None:
            await self._transcript.end_sessions()
            self.id = self.started_at = self._cli_session_id = None
            self.turns = 0
        await asyncio.to_thread(clear_cli_files, self._settings.cli_state)

    def cost_of_turn(self, total_usd: float | None) -> float | None:
        """The CLI counts a conversation's cost; a turn's is what was added."""
        if total_usd is None:
            return None
        cost = max(0.0, total_usd - self._cli_cost_usd)
        self._cli_cost_usd = total_usd
        # The CLI goes by the model's name, which the stand-in answers to as well.
        return 0.0 if self._settings.is_offline else cost

    async def link_cli(self, cli_session_id: str, model: str | None) -> None:
        """Notes what the CLI calls its conversation, so that a later process can resume it."""
        self.model = STAND_IN if self._settings.is_offline else model or self.model
        if self.id is not None:
            self._cli_session_id = cli_session_id
            await self._transcript.link_cli_session(self.id, cli_session_id)

    def compacted(self) -> None:
        """The agent has lost sight of its memory: what changed comes with its next prompt."""
        self._compacted = True

    async def news(self) -> str | None:
        """What the person did on the canvas; once after each compaction also what changed in memory and there."""
        was_compacted, self._compacted = self._compacted, False
        told = [self._boot_prompt.news(), await self.sight.canvas_again()] if was_compacted else []
        return "\n\n".join(text for text in (*told, await self.sight.news()) if text is not None) or None

    async def connected(self, listener: Listener) -> Conversation:
        """The conversation, begun or (after its process died) resumed. AgentError says why there is none."""
        conversation = await self._up_to_date() or await self._connect(listener)
        self._is_spare = False
        return conversation

    async def warm_up(self, listener: Listener) -> None:
        """Begins the conversation ahead of the mission that will need it. AgentError as for `connected`."""
        if self._settings.has_credentials and await self._up_to_date() is None:
            await self._connect(listener)
            self._is_spare = True

    async def cool_down(self) -> None:
        """Ends a conversation that was begun ahead and that no mission has come to use."""
        if self._is_spare:
            await self.end_process()

    async def _up_to_date(self) -> Conversation | None:
        """The conversation, if it lives and (before its first mission) knows memory as it is by now."""
        if self.conversation is None or not self.conversation.alive:
            return None
        return None if self._is_spare and await self._boot_prompt.has_changed() else self.conversation

    async def _connect(self, listener: Listener) -> Conversation:
        await self.end_process()
        # What an agent that did not stop had begun by itself ends with it.
        await self._recorder.close_task("interrupted")
        agent = await self._load_agent()
        await self.sight.begins(anew=self._cli_session_id is None)
        await self._boot_prompt.write(self._settings.boot_prompt)
        self._compacted = False
        try:
            conversation = await _connect(agent, listener, resume=self._cli_session_id)
        except AgentError:
            if self._cli_session_id is None:
                raise
            log.warning("the earlier conversation cannot be resumed; the agent goes on from memory")
            self._cli_session_id = None
            await self.sight.begins(anew=True)
            conversation = await _connect(agent, listener, resume=None)
        self._cli_cost_usd = 0.0
        self.conversation = conversation
        return conversation

    async def end_process(self) -> None:
        """Ends the agent's process, and what goes on in the background with it; the session can be gone on with."""
        conversation, self.conversation = self.conversation, None
        self._is_spare = False
        if conversation is not None:
            await conversation.close()
        self.background.clear()


async def _connect(agent: Agent, listener: Listener, resume: str | None) -> Conversation:
    conversation = agent.conversation(listener)
    try:
        await conversation.connect(resume)
    except AgentError:
        await conversation.close()
        raise
    return conversation
