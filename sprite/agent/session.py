"""The session: its row in the log, its cost, and its conversation with the agent.

The CLI's process starts when a mission needs it, is resumed after it died, and closes with the session. The CLI's
records of the session are then deleted.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import logging
import re
import sys
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from types import ModuleType
from typing import TYPE_CHECKING

from msgspec import UNSET, UnsetType

from sprite.agent.background import Background
from sprite.agent.processes import clear_cli_files, keep_cli_session
from sprite.boot.canvas import CanvasContext
from sprite.boot.prompt import BootPrompt, turn_lines, within
from sprite.capture.recorder import TurnRecorder
from sprite.common.tasks import owned_task
from sprite.config import STAND_IN, Settings
from sprite.errors import AgentError, PeerError, ShortageError, SpriteError, is_shortage
from sprite.log.curations import OFF_RECORD
from sprite.log.transcript import Outcome, TranscriptDB
from sprite.log.transcript import Session as StoredSession
from sprite.protocol.framing import part
from sprite.protocol.shapes import Effort
from sprite.sandbox.sandbox import Boundary, find_boundary

if TYPE_CHECKING:
    from sprite.agent.conversation import Conversation
    from sprite.agent.options import Agent
    from sprite.agent.runtime import AgentRuntime


log = logging.getLogger(__name__)

#: After this idle time the next mission starts a new session.
IDLE_SECONDS = 12 * 3600.0
#: Limit for the turns that a resumed session begins with.
RECAP_TOKENS = 8_000
_OPTIONS = "sprite.agent.options"
_MODEL_NAME = re.compile(r"[A-Za-z0-9][\w.:/@\[\]-]{0,199}")
RECAP = "This session was begun earlier and is continued now. Its latest turns:"


class Session:
    """Hold the agent's sessions, one after another. `id` is None between them."""

    def __init__(
        self,
        settings: Settings,
        transcript: TranscriptDB,
        recorder: TurnRecorder,
        boot_prompt: BootPrompt,
        load_agent: Callable[[], Awaitable[Agent]],
        background: Background,
        sight: CanvasContext,
    ) -> None:
        self._settings = settings
        self._transcript = transcript
        self._recorder = recorder
        self._boot_prompt = boot_prompt
        self._load_agent = load_agent
        #: The agent's knowledge of its canvas.
        self.sight = sight
        #: Background work; it lives as long as the agent's process.
        self.background = background
        self._cli_session_id: str | None = None
        self._cli_cost_usd = 0.0
        self._last_active = 0.0
        #: Whether a compaction removed memory from the agent's context: `news` then returns all changes.
        self.is_compacted = False
        #: Whether the CLI does not know the session's earlier turns.
        self._is_new_to_cli = False
        #: Whether the conversation was prewarmed and has had no mission yet.
        self._is_spare = False
        self.id: str | None = None
        self.started_at: float | None = None
        self.turns = 0
        #: The person's choice for the session, or None for the default.
        self.chosen_model: str | None = None
        self.effort: Effort | None = None
        self._reported_model: str | None = None
        #: The conversation, from the first mission that needs it until the session ends.
        self.conversation: Conversation | None = None

    @property
    def model(self) -> str | None:
        """The agent's model, as reported by the CLI, chosen or configured, or None until it is known."""
        if self._settings.is_offline:
            return STAND_IN if self._reported_model else None
        return self._reported_model or self.chosen_model or next(iter(self._settings.models), None)

    @property
    def has_rested(self) -> bool:
        """Whether the session has been idle for too long to be continued."""
        return self.id is not None and time.time() - self._last_active > IDLE_SECONDS

    async def restore(self) -> None:
        """Restore the session that an earlier process left open, if any."""
        session = await self._transcript.open_session()
        if session is not None:
            self._cli_session_id = session.cli_session_id
            self._go_on(session)
        # A killed process leaves its agent's files; those of the restored session are needed to resume it.
        folder = self._settings.cli_state
        if self._cli_session_id is None:
            await asyncio.to_thread(clear_cli_files, folder)
        else:
            await asyncio.to_thread(keep_cli_session, folder, self._cli_session_id)

    async def begin(self) -> None:
        """Start a session unless one is open."""
        if self.id is None:
            self._go_on(await self._transcript.start_session(str(uuid.uuid4())))

    async def resume(self, session_id: str) -> None:
        """Continue an ended session instead of the present one, which has ended. PeerError if there is none."""
        session = await self._transcript.reopen_session(session_id)
        if session is None:
            raise PeerError("There is no such session.", code="not_found")
        self._go_on(session)

    def _go_on(self, session: StoredSession) -> None:
        self.id, self.started_at, self.turns = session.id, session.started_at, session.message_count
        self._last_active = session.last_active_at
        self.chosen_model, self.effort = session.model, session.effort
        self._recorder.session_id = session.id

    async def choose(self, model: str | UnsetType | None, effort: Effort | UnsetType | None) -> None:
        """Use another model or effort from the next turn on. PeerError for an invalid name."""
        model = self.chosen_model if model is UNSET else model
        effort = self.effort if effort is UNSET else effort
        if model is not None and _MODEL_NAME.fullmatch(model) is None:
            raise PeerError(f"{model[:80]!r} is not a model name.")
        await self.begin()
        await self._transcript.choose_model(self.id or "", model, effort)
        self.chosen_model, self.effort, self._reported_model = model, effort, None
        # The CLI takes both at its start.
        await self.end_process()

    def acted(self, turns: int = 0) -> None:
        """Add to the count of turns, and restart the session's idle time."""
        self.turns += turns
        self._last_active = time.time()

    async def close(self, outcome: Outcome = "interrupted") -> None:
        """End the agent's process and the session, and delete the CLI's files. Open turns get this `outcome`."""
        await self.end_process()
        await self._recorder.close_session(outcome)
        if self.id is not None:
            await self._transcript.end_sessions()
            self.id = self.started_at = self._cli_session_id = None
            self.chosen_model = self.effort = self._reported_model = None
            self.turns = 0
        await asyncio.to_thread(clear_cli_files, self._settings.cli_state)

    def cost_of_turn(self, total_usd: float | None) -> float | None:
        """Return the cost that a turn added. The CLI reports the total of the conversation."""
        if total_usd is None:
            return None
        cost = max(0.0, total_usd - self._cli_cost_usd)
        self._cli_cost_usd = total_usd
        # The CLI computes cost by the model's name, and the fake model answers to that name, too.
        return 0.0 if self._settings.is_free else cost

    async def link_cli(self, cli_session_id: str, model: str | None) -> None:
        """Record the CLI's id of the conversation, so that a later process can resume it."""
        self._reported_model = model
        if self.id is not None:
            self._cli_session_id = cli_session_id
            await self._transcript.link_cli_session(self.id, cli_session_id)

    async def news(self) -> str | None:
        """Return text for the next prompt: the person's canvas changes, or None if there is nothing new.

        After a compaction it also has the changed memory and the canvas, in a new conversation the latest turns.
        """
        was_compacted, self.is_compacted = self.is_compacted, False
        told = [self._boot_prompt.news(), await self.sight.canvas_again()] if was_compacted else []
        if self._is_new_to_cli:
            self._is_new_to_cli = False
            told.append(await self._recap())
        return "\n\n".join(text for text in (*told, await self.sight.news()) if text is not None) or None

    async def _recap(self) -> str | None:
        turns = await self._transcript.observations_of_session(self.id or "")
        lines = within(RECAP_TOKENS, (turn_lines(turn) for turn in reversed(turns) if turn.processed != OFF_RECORD))
        text = "\n".join(reversed(lines))
        return f"{RECAP}\n{part('recent_turns', text)}" if lines else None

    async def connected(self, listener: AgentRuntime) -> Conversation:
        """Return the conversation, started or resumed after its process died. Raises AgentError with the reason."""
        conversation = await self._up_to_date() or await self._connect(listener)
        self._is_spare = False
        return conversation

    async def warm_up(self, listener: AgentRuntime) -> None:
        """Start the conversation before a mission needs it. Raises AgentError like `connected`."""
        if self._settings.has_credentials and await self._up_to_date() is None:
            await self._connect(listener)
            self._is_spare = True

    async def cool_down(self) -> None:
        """End a prewarmed conversation that no mission has used."""
        if self._is_spare:
            await self.end_process()

    async def rest(self) -> None:
        """End an idle process (190 to 280 MB) without background work. The next mission resumes it."""
        is_idle = time.time() - self._last_active >= self._settings.prewarm_seconds
        if is_idle and self._cli_session_id is not None and not self.background.works():
            await self.end_process()

    async def _up_to_date(self) -> Conversation | None:
        """Return the conversation if it lives and (before its first mission) its memory text is current."""
        if self.conversation is None or not self.conversation.alive:
            return None
        return None if self._is_spare and await self._boot_prompt.has_changed() else self.conversation

    async def _connect(self, listener: AgentRuntime) -> Conversation:
        await self.end_process()
        # Turns that an unresponsive agent had begun by itself end with it.
        await self._recorder.close_task("interrupted")
        agent = await self._load_agent()
        await self.sight.begins(anew=self._cli_session_id is None)
        await self._boot_prompt.write(self._settings.boot_prompt)
        self.is_compacted = False
        try:
            conversation = await self._conversation(agent, listener)
        except AgentError:
            if self._cli_session_id is None:
                raise
            log.warning("the earlier conversation cannot be resumed; the agent goes on from memory")
            self._cli_session_id = None
            await self.sight.begins(anew=True)
            conversation = await self._conversation(agent, listener)
        self._cli_cost_usd = 0.0
        self._is_new_to_cli = self._cli_session_id is None and self.turns > 0
        self.conversation = conversation
        return conversation

    async def _conversation(self, agent: Agent, listener: AgentRuntime) -> Conversation:
        conversation = agent.conversation(listener)
        try:
            await conversation.connect(self._cli_session_id, self.chosen_model, self.effort)
        except AgentError:
            await conversation.close()
            raise
        return conversation

    async def end_process(self) -> None:
        """End the agent's process and its background work. The session can be continued."""
        conversation, self.conversation = self.conversation, None
        self._is_spare = False
        if conversation is not None:
            await conversation.close()
        self.background.clear()


class LazyAgent:
    """Import the agent's module in the background; `make` creates the agent of it and the detected sandbox.

    Without prewarming, the module is imported on demand, because it takes 40 MB and most of a second.
    """

    def __init__(self, settings: Settings, make: Callable[..., Agent]) -> None:
        self._settings = settings
        self._make = make
        self._wanted = asyncio.Event()
        self._attempt: asyncio.Future[Agent] = asyncio.get_running_loop().create_future()
        self._is_over = False
        #: The detected sandbox, once it was tried.
        self.boundary: Boundary | None = None

    @asynccontextmanager
    async def loading(self, on_death: Callable[[], None]) -> AsyncIterator[None]:
        """Import the module while the block runs. At its end, wait for the import: a thread cannot be stopped."""
        if self._settings.prewarm_seconds:
            self._wanted.set()
        async with owned_task(self._load(), name="agent import", on_death=on_death, finish=self._end, may_return=True):
            yield

    def _end(self) -> None:
        self._is_over = not self._wanted.is_set()
        self._wanted.set()

    async def ready(self) -> Agent:
        """Wait for the import and return the agent. Raises ShortageError if a retry may help, else AgentError."""
        self._wanted.set()
        return await asyncio.shield(self._attempt)

    async def _load(self) -> None:
        try:
            while not self._attempt.done():
                await self._wanted.wait()
                if self._is_over:
                    return
                await self._try()
        finally:
            if not self._attempt.done():
                self._fail(AgentError("The agent cannot be loaded; the sprite's log says why."))

    async def _try(self) -> None:
        try:
            module = await asyncio.to_thread(_imported)
            boundary = await asyncio.to_thread(find_boundary, self._settings)
        except Exception as error:
            if not is_shortage(error):
                raise
            log.warning("the agent cannot be loaded now: %s", error)
            self._wanted.clear()
            self._fail(ShortageError())
            self._attempt = asyncio.get_running_loop().create_future()
            return
        log.log(logging.INFO if boundary.holds else logging.WARNING, "the agent's sandbox: %s", boundary.words)
        self.boundary = boundary
        self._attempt.set_result(self._make(module, boundary))

    def _fail(self, error: SpriteError) -> None:
        self._attempt.set_exception(error)
        # No task may be waiting for it, and asyncio would log an exception that was never retrieved.
        self._attempt.exception()


def _imported() -> ModuleType:
    is_first = _OPTIONS not in sys.modules
    module = importlib.import_module(_OPTIONS)
    if is_first:
        # A collection of the SDKs' 100,000 objects stalls the event loop for 70 ms.
        gc.freeze()
    return module
