"""Record each turn as one observation, however it ends. At most one mission and one background turn are open.

The CLI gives every turn a `prompt_id`, which the agent's own hooks carry. A mission's turn is recognised by its words.
A message that the CLI merges into a running turn keeps that turn's `prompt_id`.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from msgspec import UNSET

from sprite.capture.turn_buffer import TOLD, Subagents, TurnBuffer
from sprite.common.tasks import WORDS, TaskSet, is_set_within, off_loop, size_of
from sprite.errors import StorageError
from sprite.log.transcript import JournalEntry, NewObservation, Outcome, TranscriptDB, Trigger
from sprite.privacy.cutting import clean
from sprite.privacy.private_text import PrivateText
from sprite.protocol.pasted import Spans
from sprite.protocol.shapes import counted

log = logging.getLogger(__name__)

#: The stream sends the end of a background turn just before the next one's first prompt. It may be read later.
_NEXT_TASK_SECONDS = 2.0


class TurnRecorder:
    """Record the agent's turns: journal the events of hooks and stream, and write observations.

    If the disk fails, `on_storage_error` gets a description, and the observation is written with the next turn.
    """

    def __init__(
        self, transcript: TranscriptDB, on_storage_error: Callable[[str], None], private_text: PrivateText | None = None
    ) -> None:
        self._transcript = transcript
        #: Private words of the conversation, which are not stored.
        self.private_text = private_text or PrivateText()
        self._on_storage_error = on_storage_error
        #: The session of all later turns.
        self.session_id = ""
        self._mission: TurnBuffer | None = None
        self._task: TurnBuffer | None = None
        #: Returns whether a background turn of the CLI may begin. Then `task_began` gets its id, and at its end
        #: `task_ended` its observation.
        self.may_begin: Callable[[], bool] = lambda: True
        self.task_began: Callable[[str], None] | None = None
        self.task_ended: Callable[[NewObservation], Awaitable[None]] | None = None
        #: Gets the id, name and input of each tool call before it runs, and `tool_done` the id after it.
        self.tool_begins: Callable[[str, str, Any], Awaitable[None]] | None = None
        self.tool_done: Callable[[str], None] = lambda _id: None
        self._agents = Subagents(self._new_task)
        self._no_task = asyncio.Event()
        self._no_task.set()
        #: Set while the agent has started the open mission.
        self.taken_up = asyncio.Event()
        self._entries = TaskSet()
        self._writes = TaskSet()
        self._unsaved: list[tuple[NewObservation, list[str]]] = []
        self._writing = asyncio.Lock()

    # --- life of a turn ---

    def open_mission(
        self, mission_id: str, text: str, trigger: Trigger = "user", *, asked_by: str | None = None, pasted: Spans = ()
    ) -> None:
        """Begin a mission's turn before the agent gets it. `asked_by` and `pasted` are as in `TurnBuffer`."""
        self._mission = TurnBuffer(
            self.session_id, trigger, mission_id, text, private_text=self.private_text, asked_by=asked_by, pasted=pasted
        )
        if trigger == "schedule":
            self._mission.add_notice(text)
        self.taken_up.clear()

    def pictured(self, path: str, shown: str, origin: str) -> None:
        """Record that the sprite shows the agent a picture in the open mission; the log has it as a tool call."""
        if (turn := self._mission) is not None:
            turn.end_tool(
                call := turn.call(f"{TOLD}{uuid.uuid4().hex}", "Read", {"file_path": path}, shown, origin=origin)
            )
            self._entries.start(self._journal(turn, "tool", {"call": call}), "picture entry")

    @property
    def task_id(self) -> str | None:
        """Return the id of the current background turn, or None without one or without watchers."""
        return self._task.mission_id if self._task is not None else None

    @property
    def in_task_turn(self) -> bool:
        """Return whether the agent is in a background turn and has not started a mission in it."""
        return self._task is not None and not self.taken_up.is_set()

    async def quiet(self, seconds: float) -> None:
        """Wait at most this long until no background turn runs."""
        if not await is_set_within(self._no_task, seconds):
            log.warning("a background turn takes longer than %.0f s; the mission goes ahead", seconds)

    async def close_mission(self, outcome: Outcome, notice: str = "") -> NewObservation | None:
        """End the open mission's turn; write and return its observation."""
        mission, self._mission = self._mission, None
        return None if mission is None else await self._write(mission, outcome, notice)

    async def drop_mission(self) -> bool:
        """Drop the open mission's turn, so that it can begin again. Return False if the agent called a tool in it."""
        mission = self._mission
        if mission is None or mission.has_effects:
            return mission is None
        if self._entries:
            # An entry written later would look like the remains of a crash.
            await asyncio.wait(self._entries)
        for key in mission.keys:
            await self._transcript.journal.drop(key)
        self._mission = None
        return True

    async def close_task(self, outcome: Outcome) -> None:
        """End the background turn and write its observation."""
        task, self._task = self._task, None
        self._no_task.set()
        if task is not None:
            observation = await self._write(task, outcome)
            if self.task_ended is not None:
                await self.task_ended(observation)

    async def close_session(self, outcome: Outcome = "interrupted") -> None:
        """Write all open turns with this outcome at the end of the session."""
        await self.close_mission(outcome)
        await self.close_task(outcome)
        rest = list(self._agents.take_rest())
        if rest:
            for agent in rest[1:]:
                rest[0].adopt(agent)
            await self._write(rest[0], "complete")
        await self._write_unsaved()

    async def recover(self, begin_again: Collection[str] = ()) -> None:
        """Write the turns of a killed process as crashed; drop those without a tool call that may `begin_again`."""
        entries = await self._transcript.journal.entries()
        for key, mission in {entry.turn_key: entry.data["mission_id"] for entry in entries}.items():
            if mission is not None and await self._transcript.turn_of(mission) is not None:
                # The entry of a hook that came after the end of its turn. The log has the turn.
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

    # --- hooks: each does one small insert and never raises for a disk error ---

    async def prompt_submitted(self, prompt_id: str, prompt: str) -> bool:
        """Record a prompt: the mission's words, or a notice of the CLI. Return whether the agent may act on it."""
        prompt, mission = clean(prompt), self._mission
        if mission is not None and mission.prompt_id is None and prompt.split() == mission.user_message.split():
            if self._task is not None and self._task.prompt_id == prompt_id:
                # The CLI merged the mission into a background turn: that turn ends here, and the mission's begins.
                await self.close_task("complete")
            mission.prompt_id = prompt_id
            self.taken_up.set()
            if mission.trigger != "schedule":
                said = await off_loop(WORDS * len(prompt), getattr, mission, "discreet_message")
                await self._journal(mission, "prompt", {"user_message": said.text, "pasted": said.pasted})
            else:
                await self._journal(mission, "notice", {"notice": self.private_text.others(mission.user_message)})
            return True
        if mission is not None and mission.prompt_id == prompt_id:
            await self._noticed(mission, prompt)
            return True
        if self._task is not None and self._task.prompt_id != prompt_id:
            # The next background turn has begun; the end of the previous one is still on its way.
            await is_set_within(self._no_task, _NEXT_TASK_SECONDS)
        task, is_new = self._task, self._task is None
        if task is None:
            if not self.may_begin():
                return False
            self._no_task.clear()
            task = self._task = self._new_task()
            task.mission_id = None if self.task_began is None else str(uuid.uuid4())
        task.prompt_id = prompt_id
        await self._noticed(task, prompt)
        if is_new and self.task_began is not None and task.mission_id is not None:
            self.task_began(task.mission_id)
        return True

    async def tool_starting(
        self, prompt_id: str, tool_use_id: str, name: str, tool_input: Any, *, agent_id: str | None
    ) -> None:
        """Journal the start of a tool call in its turn, so that a crash leaves a record."""
        if self.tool_begins is not None:
            await self.tool_begins(tool_use_id, name, tool_input)
        turn = self._turn_of(prompt_id, tool_use_id) if agent_id is None else self._agent(agent_id, prompt_id)
        call = turn.known(tool_use_id) or await _call(turn, tool_use_id, name, tool_input, agent_id=agent_id)
        await self._journal(turn, "start", {"call": turn.start_tool(call)})

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
        origin: str | None = None,
    ) -> None:
        """Journal the end of a tool call in its turn; `origin` is that of untrusted content in its result."""
        self.tool_done(tool_use_id)
        turn = self._turn_of(prompt_id, tool_use_id) if agent_id is None else self._agent(agent_id, prompt_id)
        call = await _call(
            turn, tool_use_id, name, tool_input, result, is_error=is_error, agent_id=agent_id, origin=origin
        )
        turn.end_tool(call)
        self._agents.note_launch(tool_use_id, result)
        await self._journal(turn, "tool", {"call": call})

    async def noted(self, prompt_id: str, name: str, given: Mapping[str, str], result: str) -> None:
        """Record a text that the sprite added to a prompt in the prompt's turn; the log has it as a tool call."""
        turn, call_id = self._turn_of(prompt_id, ""), f"{TOLD}{uuid.uuid4().hex}"
        turn.end_tool(call := await _call(turn, call_id, name, dict(given), result))
        await self._journal(turn, "tool", {"call": call})

    async def stopped(self, prompt_id: str, message: str) -> None:
        """Record the agent's last message, which the CLI's Stop hook reports at the end of a turn."""
        for turn in self._open_turns():
            if turn.prompt_id == prompt_id:
                said = await off_loop(WORDS * len(message), turn.set_last_message, message)
                # Not awaited: the observation follows within milliseconds, and the agent waits for this hook.
                self._entries.start(self._journal(turn, "stop", {"message": said}), "stop entry")

    # --- stream ---

    async def text(self, text: str) -> None:
        """Add text of the agent to the current turn."""
        turn = self._current()
        if turn is not None:
            await off_loop(WORDS * len(text), turn.add_text, text)

    def noticed(self, text: str) -> None:
        """Add a notice by the sprite itself to the current turn."""
        if (turn := self._current()) is not None:
            turn.add_notice(text)

    async def tool_started(self, tool_use_id: str, name: str, tool_input: Any) -> None:
        """Add a tool call to the current turn; an interrupted call leaves no other trace."""
        turn = self._current()
        if turn is not None:
            turn.start_tool(turn.known(tool_use_id) or await _call(turn, tool_use_id, name, tool_input))

    def agent_started(self, agent_id: str, tool_use_id: str) -> None:
        """Record that a tool call started a subagent, in the foreground or background."""
        self._agents.started(agent_id, tool_use_id)

    async def tool_answered(self, tool_use_id: str, result: Any, *, is_error: bool) -> None:
        """Record a tool's result from the stream."""
        for turn in self._open_turns():
            await off_loop(WORDS * size_of(result), turn.tool_answered, tool_use_id, result, is_error=is_error)

    # --- internals ---

    def _open_turns(self) -> Iterable[TurnBuffer]:
        return [turn for turn in (self._mission, self._task) if turn is not None]

    def _current(self) -> TurnBuffer | None:
        """Return the turn that the main stream belongs to: the mission's once it has started."""
        if self._mission is not None and self._mission.prompt_id is not None:
            return self._mission
        return self._task or self._mission

    def _turn_of(self, prompt_id: str, tool_use_id: str) -> TurnBuffer:
        for turn in self._open_turns():
            if turn.prompt_id == prompt_id or turn.known(tool_use_id):
                return turn
        # A hook came after the end of its turn. The next background turn takes it.
        return self._agent("", prompt_id)

    def _agent(self, agent_id: str, prompt_id: str) -> TurnBuffer:
        """Return a subagent's buffer, and update the turn in which it works, which gets its calls after a crash."""
        agent = self._agents.buffers[agent_id]
        turns = self._open_turns()
        agent.within = next((turn for turn in turns if self._agents.works_in(agent_id, turn, prompt_id)), None)
        return agent

    def _new_task(self) -> TurnBuffer:
        return TurnBuffer(self.session_id, "task", private_text=self.private_text)

    async def _noticed(self, turn: TurnBuffer, notice: str) -> None:
        """Add a CLI notice to a turn, with the calls of the agents that it reports."""
        kept = await off_loop(WORDS * len(notice), turn.add_notice, notice)
        agents = list(self._agents.take_reported(notice))
        for agent in agents:
            turn.adopt(agent)
            agent.within = turn
        await self._journal(turn, "notice", {"notice": kept})
        for agent in agents:
            await self._journal(agent, "reported", {})

    async def _journal(self, turn: TurnBuffer, event: str, data: dict[str, Any]) -> None:
        try:
            await self._transcript.journal.append(turn.key, turn.session_id, event, {**turn.snapshot(), **data})
        except StorageError as error:
            self._on_storage_error(f"{error} The turn continues, and is written once that is possible.")

    async def _write(self, turn: TurnBuffer, outcome: Outcome, notice: str = "") -> NewObservation:
        for agent in self._agents.take_foreground(turn):
            turn.adopt(agent)
        observation = turn.observation(outcome, notice)
        self._unsaved.append((observation, turn.keys))
        await self._write_unsaved()
        return observation

    async def _write_unsaved(self) -> None:
        # Shielded: a cancelled caller (a hook, the stream's reader) must not leave a written turn listed as unsaved.
        await asyncio.shield(self._writes.start(self._write_all(), "observations"))

    async def _write_all(self) -> None:
        # A mission's turn and a background turn can end at the same moment, in two tasks.
        async with self._writing:
            if self._entries:
                # An entry written after its turn would look like the remains of a crash.
                await asyncio.wait(self._entries)
            while self._unsaved:
                observation, keys = self._unsaved[0]
                try:
                    await self._transcript.add_observation(observation, turn_keys=keys)
                except StorageError as error:
                    self._on_storage_error(f"{error} Not written yet: {counted(len(self._unsaved), 'turn')}.")
                    return
                except Exception:
                    # One unwritable turn must not block all others; its journal keeps it for a restart.
                    log.exception("a turn could not be written: %.500r", observation)
                self._unsaved.pop(0)


async def _call(
    turn: TurnBuffer, tool_use_id: str, name: str, tool_input: Any, result: Any = UNSET, **more: Any
) -> dict[str, Any]:
    """Return the logged form of a call; see `TurnBuffer.call`."""
    size = size_of(tool_input) + (0 if result is UNSET else size_of(result))
    return await off_loop(WORDS * size, turn.call, tool_use_id, name, tool_input, result, **more)


def _turns(entries: Sequence[JournalEntry]) -> dict[str, list[JournalEntry]]:
    """Group journal entries by turn. A subagent's entries go to the last turn it was in."""
    within = {entry.turn_key: entry.data.get("within") for entry in entries}
    turns: dict[str, list[JournalEntry]] = {}
    for entry in entries:
        home = within[entry.turn_key]
        turns.setdefault(home if home in within else entry.turn_key, []).append(entry)
    return turns
