"""Turns as they happen -> one observation each, however they end.

Owns the open turns: at most one of a mission's, at most one that the CLI began by itself, and what subagents did that
no turn has taken yet. Knows the log; knows neither the SDK nor who is watching.

The CLI gives every turn a `prompt_id`, which the hooks of the agent itself carry; a mission's turn is recognised by its
words, since the CLI answers with an id of its own. A message that the CLI merges into a running turn keeps that turn's
`prompt_id`.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from sprite.common.tasks import TaskSet
from sprite.database.transcript import NewObservation, Outcome, TranscriptDB, Trigger
from sprite.database.turn_journal import JournalEntry
from sprite.errors import StorageError
from sprite.memory.capture.subagents import Subagents
from sprite.memory.capture.turn_buffer import TOLD, TurnBuffer
from sprite.privacy.confidences import Confidences
from sprite.privacy.cutting import clean
from sprite.protocol.large_input import WORDS, off_loop

log = logging.getLogger(__name__)

#: The stream brings the end of a turn of the CLI's own just before the next one's first prompt; it may be read later.
_NEXT_TASK_SECONDS = 2.0


class TurnRecorder:
    """Takes what hooks and stream say, journals it, and writes observations.

    `on_storage_error` is told, in words, when the disk refuses; the turn goes on and what could not be written
    is kept and written with the next turn.
    """

    def __init__(
        self,
        transcript: TranscriptDB,
        on_storage_error: Callable[[str], None],
        confidences: Confidences | None = None,
    ) -> None:
        self._transcript = transcript
        self._confidences = confidences or Confidences()
        self._on_storage_error = on_storage_error
        self._session_id = ""
        self._mission: TurnBuffer | None = None
        self._task: TurnBuffer | None = None
        self._may_begin: Callable[[], bool] = lambda: True
        self._task_began: Callable[[str], None] | None = None
        self._task_ended: Callable[[NewObservation], Awaitable[None]] | None = None
        self._agents = Subagents()
        self._no_task = asyncio.Event()
        self._no_task.set()
        self._taken_up = asyncio.Event()
        self._entries = TaskSet()
        self._writes = TaskSet()
        self._unsaved: list[tuple[NewObservation, list[str]]] = []
        self._writing = asyncio.Lock()

    # --- life of a turn ---

    def begin_session(self, session_id: str) -> None:
        """Turns from here on belong to this session."""
        self._session_id = session_id

    def watch_tasks(
        self,
        may_begin: Callable[[], bool],
        began: Callable[[str], None],
        ended: Callable[[NewObservation], Awaitable[None]],
    ) -> None:
        """Set whom to ask whether the CLI may begin a turn by itself, and to tell of its id and how it was written."""
        self._may_begin, self._task_began, self._task_ended = may_begin, began, ended

    def open_mission(
        self, mission_id: str, text: str, trigger: Trigger = "user", *, asked_by: str | None = None
    ) -> None:
        """A mission is about to be handed to the agent. A schedule's text is kept as a notice: nobody said it.

        `asked_by` names the program that says it, where `trigger` is "program".
        """
        self._mission = TurnBuffer(
            self._session_id, trigger, mission_id, text, confidences=self._confidences, asked_by=asked_by
        )
        if trigger == "schedule":
            self._mission.add_notice(text)
        self._taken_up.clear()

    async def taken_up(self, seconds: float) -> bool:
        """Waits until the agent has taken up the open mission, for so long at most; whether it has."""
        try:
            async with asyncio.timeout(seconds):
                await self._taken_up.wait()
        except TimeoutError:
            return False
        return True

    @property
    def has_taken_up(self) -> bool:
        """Whether the agent has taken up the open mission."""
        return self._taken_up.is_set()

    @property
    def task_id(self) -> str | None:
        """The turn of the CLI's own that is under way, if anybody watches them."""
        return self._task.mission_id if self._task is not None else None

    @property
    def in_task_turn(self) -> bool:
        """Whether the agent is in a turn of its own and has not taken up a mission in it."""
        return self._task is not None and not self._taken_up.is_set()

    async def quiet(self, seconds: float) -> None:
        """Waits until the agent is in no turn of its own, for so long at most."""
        if not await self._wait_for_no_task(seconds):
            log.warning("a background turn takes longer than %.0f s; the mission goes ahead", seconds)

    async def close_mission(self, outcome: Outcome, notice: str = "") -> NewObservation | None:
        """The open mission's turn has ended: writes its observation, and returns it."""
        mission, self._mission = self._mission, None
        return None if mission is None else await self._write(mission, outcome, notice)

    async def drop_mission(self) -> bool:
        """Drops the open mission's turn, if any, unless the agent has called a tool in it; whether none is left.

        The mission can begin again then, as if it never had.
        """
        mission = self._mission
        if mission is None:
            return True
        if mission.has_effects:
            return False
        if self._entries:
            # Written later, one would pass for what a crash had left.
            await asyncio.wait(self._entries)
        for key in mission.keys:
            await self._transcript.journal.drop(key)
        self._mission = None
        return True

    async def close_task(self, outcome: Outcome, notice: str = "") -> None:
        """The turn that the CLI began by itself has ended: writes its observation."""
        task, self._task = self._task, None
        self._no_task.set()
        if task is not None:
            observation = await self._write(task, outcome, notice)
            if self._task_ended is not None:
                await self._task_ended(observation)

    async def close_session(self, outcome: Outcome = "interrupted") -> None:
        """Nothing more will come: what is still open is written as it stands, with this outcome."""
        await self.close_mission(outcome)
        await self.close_task(outcome)
        rest = list(self._agents.take_rest())
        if rest:
            for agent in rest[1:]:
                rest[0].adopt(agent)
            await self._write(rest[0], "complete")
        await self._write_unsaved()

    async def recover(self, begin_again: Collection[str] = ()) -> None:
        """Writes what a killed process left in the journal, one crashed turn each, in the order they began in.

        Of the missions that may `begin_again`, a turn without a tool call is dropped instead.
        """
        entries = await self._transcript.journal.entries()
        for key, mission in {entry.turn_key: entry.data["mission_id"] for entry in entries}.items():
            if mission is not None and await self._transcript.turn_of(mission) is not None:
                # A hook that came after its turn's end; the turn itself is in the log.
                await self._transcript.journal.drop(key)
                entries = [entry for entry in entries if entry.turn_key != key]
        for key, turn in _turns(entries).items():
            buffer = TurnBuffer.replayed(key, turn)
            if buffer.mission_id in begin_again and not buffer.has_effects:
                for dropped in buffer.keys:
                    await self._transcript.journal.drop(dropped)
                continue
            log.warning("a turn of session %s was cut off by a crash", buffer.session_id)
            await self._transcript.add_observation(buffer.observation("crashed"), turn_keys=buffer.keys, at=turn[-1].at)

    # --- hooks: each makes one small insert, and never raises for the disk's sake ---

    async def prompt_submitted(self, prompt_id: str, prompt: str) -> bool:
        """A prompt enters the conversation: the mission's words, or a notice of the CLI's own.

        Returns whether the agent may act on it: a turn of its own may be one too many.
        """
        prompt, mission = clean(prompt), self._mission
        if mission is not None and mission.prompt_id is None and prompt.split() == mission.user_message.split():
            if self._task is not None and self._task.prompt_id == prompt_id:
                # Merged into a turn the CLI had begun: that one ends here, what follows is the mission's.
                await self.close_task("complete")
            mission.prompt_id = prompt_id
            self._taken_up.set()
            if mission.trigger != "schedule":
                said = await off_loop(WORDS * len(prompt), getattr, mission, "discreet_message")
                await self._journal(mission, "prompt", {"user_message": said})
            else:
                await self._journal(mission, "notice", {"notice": self._confidences.others(mission.user_message)})
            return True
        if mission is not None and mission.prompt_id == prompt_id:
            await self._noticed(mission, prompt)
            return True
        if self._task is not None and self._task.prompt_id != prompt_id:
            # The next turn of the CLI's own; the end of the one before is on its way.
            await self._wait_for_no_task(_NEXT_TASK_SECONDS)
        task, is_new = self._task, self._task is None
        if task is None:
            if not self._may_begin():
                return False
            self._no_task.clear()
            task = self._task = self._new_task()
            task.mission_id = None if self._task_began is None else str(uuid.uuid4())
        task.prompt_id = prompt_id
        await self._noticed(task, prompt)
        if is_new and self._task_began is not None and task.mission_id is not None:
            self._task_began(task.mission_id)
        return True

    async def tool_starting(
        self, prompt_id: str, tool_use_id: str, name: str, tool_input: Any, *, agent_id: str | None
    ) -> None:
        """A tool call begins, in whichever turn makes it: a process that is killed now has left word of it."""
        turn = self._turn_of(prompt_id, tool_use_id) if agent_id is None else self._agent(agent_id, prompt_id)
        call = turn.start_tool(tool_use_id, name, tool_input, agent_id)
        await self._journal(turn, "start", {"call": call})

    async def tool_ended(
        self,
        prompt_id: str,
        tool_use_id: str,
        name: str,
        tool_input: Any,
        result: Any,
        *,
        is_error: bool,
        agent_id: str | None,
    ) -> None:
        """A tool call ended, in whichever turn made it."""
        turn = self._turn_of(prompt_id, tool_use_id) if agent_id is None else self._agent(agent_id, prompt_id)
        call = turn.end_tool(tool_use_id, name, tool_input, result, is_error=is_error, agent_id=agent_id)
        self._agents.note_launch(tool_use_id, result)
        await self._journal(turn, "tool", {"call": call, "unkept": turn.unkept(tool_use_id)})

    async def noted(self, prompt_id: str, name: str, given: Mapping[str, str], result: str) -> None:
        """Something that is told with a prompt: the turn has it as the call of a tool, which the agent never made."""
        turn, call_id = self._turn_of(prompt_id, ""), f"{TOLD}{uuid.uuid4().hex}"
        call = turn.end_tool(call_id, name, dict(given), result, is_error=False)
        await self._journal(turn, "tool", {"call": call, "unkept": turn.unkept(call_id)})

    async def stopped(self, prompt_id: str, message: str) -> None:
        """The agent said its last word of a turn."""
        for turn in self._open_turns():
            if turn.prompt_id == prompt_id:
                turn.set_last_message(message)
                # Not awaited: the observation follows within milliseconds, and the agent waits for this hook.
                said = {"message": self._confidences.others(clean(message))}
                self._entries.start(self._journal(turn, "stop", said), "stop entry")

    # --- stream ---

    def text(self, text: str) -> None:
        """The agent said something in the turn under way."""
        turn = self._current()
        if turn is not None:
            turn.add_text(text)

    def tool_started(self, tool_use_id: str, name: str, tool_input: Any) -> None:
        """The agent called a tool in the turn under way; an interrupted one leaves no other trace."""
        turn = self._current()
        if turn is not None:
            turn.start_tool(tool_use_id, name, tool_input)

    def agent_started(self, agent_id: str, tool_use_id: str) -> None:
        """A tool call started a subagent, in the foreground or in the background."""
        self._agents.started(agent_id, tool_use_id)

    def tool_answered(self, tool_use_id: str, result: Any, *, is_error: bool) -> None:
        """The stream brought a tool's answer."""
        for turn in self._open_turns():
            turn.tool_answered(tool_use_id, result, is_error=is_error)

    # --- inside ---

    def _open_turns(self) -> Iterable[TurnBuffer]:
        return [turn for turn in (self._mission, self._task) if turn is not None]

    def _current(self) -> TurnBuffer | None:
        """The turn that the main stream belongs to: the mission's once the agent has taken it up."""
        if self._mission is not None and self._mission.prompt_id is not None:
            return self._mission
        return self._task or self._mission

    def _turn_of(self, prompt_id: str, tool_use_id: str) -> TurnBuffer:
        for turn in self._open_turns():
            if turn.prompt_id == prompt_id or turn.knows_tool(tool_use_id):
                return turn
        # A hook that is later than its turn's end: the next turn of the CLI's own takes it.
        return self._agent("", prompt_id)

    def _agent(self, agent_id: str, prompt_id: str) -> TurnBuffer:
        """The buffer of a subagent; what it holds is a part of the turn that waits for it if the process dies now."""
        agent = self._agents.buffer(agent_id, self._new_task)
        turns = self._open_turns()
        agent.within = next((turn for turn in turns if self._agents.works_in(agent_id, turn, prompt_id)), None)
        return agent

    def _new_task(self) -> TurnBuffer:
        return TurnBuffer(self._session_id, "task", confidences=self._confidences)

    async def _noticed(self, turn: TurnBuffer, notice: str) -> None:
        """The CLI put a notice into a turn: what the agents did that it reports is a part of that turn."""
        turn.add_notice(notice)
        agents = list(self._agents.take_reported(notice))
        for agent in agents:
            turn.adopt(agent)
            agent.within = turn
        await self._journal(turn, "notice", {"notice": self._confidences.others(notice)})
        for agent in agents:
            await self._journal(agent, "reported", {})

    async def _wait_for_no_task(self, seconds: float) -> bool:
        try:
            async with asyncio.timeout(seconds):
                await self._no_task.wait()
        except TimeoutError:
            return False
        return True

    async def _journal(self, turn: TurnBuffer, event: str, data: dict[str, Any]) -> None:
        try:
            await self._transcript.journal.append(turn.key, turn.session_id, event, {**turn.snapshot(), **data})
        except StorageError as error:
            self._on_storage_error(f"{error} The turn goes on and is kept in memory.")

    async def _write(self, turn: TurnBuffer, outcome: Outcome, notice: str = "") -> NewObservation:
        for agent in self._agents.take_foreground(turn):
            turn.adopt(agent)
        observation = turn.observation(outcome, notice)
        self._unsaved.append((observation, turn.keys))
        await self._write_unsaved()
        return observation

    async def _write_unsaved(self) -> None:
        # A caller that is cancelled (a hook, the stream's reader) must not leave a turn written but not noted as such.
        await asyncio.shield(self._writes.start(self._write_all(), "observations"))

    async def _write_all(self) -> None:
        # A mission's turn and the CLI's own can end in the same moment, each in a task of its own.
        async with self._writing:
            if self._entries:
                # Written after its turn, an entry would pass for what a crash had left.
                await asyncio.wait(self._entries)
            while self._unsaved:
                observation, keys = self._unsaved[0]
                try:
                    await self._transcript.add_observation(observation, turn_keys=keys)
                except StorageError as error:
                    self._on_storage_error(f"{error} {len(self._unsaved)} turn(s) wait to be written.")
                    return
                except Exception:
                    # One turn that cannot be written must not hold back all others; its journal keeps it for a restart.
                    log.exception("a turn could not be written: %.500r", observation)
                self._unsaved.pop(0)


def _turns(entries: Sequence[JournalEntry]) -> dict[str, list[JournalEntry]]:
    """A journal's entries by the turn that they belong to: a subagent's to the one it was in at last."""
    within = {entry.turn_key: entry.data.get("within") for entry in entries}
    turns: dict[str, list[JournalEntry]] = {}
    for entry in entries:
        home = within[entry.turn_key]
        turns.setdefault(home if home in within else entry.turn_key, []).append(entry)
    return turns
