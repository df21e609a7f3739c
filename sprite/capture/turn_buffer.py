"""One turn in progress: the request, the agent's actions and its reply (pure, no I/O).

Hooks and stream can deliver an event twice, late or out of order. Tool calls are keyed by their id.
"""

from __future__ import annotations

import re
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from msgspec import UNSET

from sprite.log.curations import OFF_RECORD, WAITING
from sprite.log.transcript import JournalEntry, NewObservation, Outcome, Trigger
from sprite.memory.words import marked_without_memory, without_memory
from sprite.privacy.cutting import clean, cut, cut_value, result_text
from sprite.privacy.private_text import PrivateText, is_off_record
from sprite.privacy.secret_formats import kept_result
from sprite.protocol.pasted import Marked, Spans, to_spans

#: Id prefix of recorded calls that the agent never made: text added to its prompt.
TOLD = "told_"


class TurnBuffer:
    """Collect the parts of one turn; `key` names the turn in the journal."""

    def __init__(
        self,
        session_id: str,
        trigger: Trigger = "user",
        mission_id: str | None = None,
        user_message: str = "",
        key: str | None = None,
        private_text: PrivateText | None = None,
        asked_by: str | None = None,
        pasted: Spans = (),
    ) -> None:
        self.key = key or str(uuid.uuid4())
        #: This turn's key and the keys of subagents whose calls it took.
        self.keys = [self.key]
        #: For a subagent: the turn that its calls belong to if the process dies now.
        self.within: TurnBuffer | None = None
        self.session_id = session_id
        self.trigger = trigger
        self.mission_id = mission_id
        #: The program that asks, if `trigger` is "program".
        self.asked_by = asked_by
        #: The request verbatim, to compare with the hook's prompt. The log gets it redacted.
        self.user_message = clean(user_message)
        #: The pasted spans of `user_message`.
        self.pasted = pasted
        self._private_text = private_text or PrivateText()
        self._discreet = self._private_text.others
        self._made_discreet: tuple[int, Marked] | None = None
        self.prompt_id: str | None = None
        self._notices: list[str] = []
        self._texts: list[str] = []
        self._last_message = ""
        self._calls: dict[str, dict[str, Any]] = {}

    @property
    def discreet_message(self) -> Marked:
        """The turn's redacted message from a user or a program, cached until the person says more private words."""
        if self._made_discreet is None or self._made_discreet[0] != self._private_text.version:
            self._made_discreet = self._private_text.version, self._message()
        return self._made_discreet[1]

    def _message(self) -> Marked:
        if self.trigger not in {"user", "program"}:
            return Marked("")
        asked = marked_without_memory(Marked(self.user_message, self.pasted))
        # Private markers of a program are ignored: they would hide its words from later checks of who said what.
        return self._private_text.marked(asked, by_person=self.trigger == "user")

    @property
    def empty(self) -> bool:
        """Whether the turn has no content yet."""
        return not (self._calls or self._texts or self._last_message or self._notices)

    @property
    def has_effects(self) -> bool:
        """Whether the agent has called a tool in the turn."""
        return any(not call_id.startswith(TOLD) for call_id in self._calls)

    def add_notice(self, text: str) -> str:
        """Add text that the CLI put into the turn, which is never the user's. Return it in its logged form."""
        self._notices.append(kept := self._kept(text))
        return kept

    def add_text(self, text: str) -> None:
        """Add a piece of the agent's reply."""
        if text.strip():
            self._texts.append(self._kept(text))

    def set_last_message(self, text: str) -> str:
        """Set the reply from the Stop hook, used if the stream had none. Return it in its logged form."""
        self._last_message = self._kept(text)
        return self._last_message

    def call(
        self,
        tool_use_id: str,
        name: str,
        tool_input: Any,
        result: Any = UNSET,
        *,
        is_error: bool = False,
        agent_id: str | None = None,
        origin: str | None = None,
    ) -> dict[str, Any]:
        """Return the logged form of a tool call, without a result while it runs. The turn does not change."""
        call: dict[str, Any] = {
            "tool_use_id": tool_use_id,
            "name": cut(name),
            "input": cut_value(tool_input, discreet=self._discreet),
            "result": None,
            "is_error": is_error,
        }
        if result is not UNSET:
            call["result"] = cut(kept_result(tool_input, self._said(result)), discreet=self._discreet)
        if agent_id:
            call["agent_id"] = agent_id
        if origin:
            call["origin"] = cut(origin, discreet=self._discreet)
        return call

    def known(self, tool_use_id: str) -> dict[str, Any] | None:
        """Return this turn's call with this id in its logged form, or None; a running call has no result."""
        return self._calls.get(tool_use_id)

    def start_tool(self, call: dict[str, Any]) -> dict[str, Any]:
        """Add a tool call when it starts. If the call is known, keep its data. Return the call's data."""
        # The stream has the true order: hooks of parallel calls arrive in the order of their ends.
        known = self._calls.pop(call["tool_use_id"], call)
        self._calls[call["tool_use_id"]] = known
        return known

    def end_tool(self, call: dict[str, Any]) -> None:
        """Record the end of a tool call from a hook."""
        self._calls[call["tool_use_id"]] = call

    def tool_answered(self, tool_use_id: str, result: Any, *, is_error: bool) -> None:
        """Record a result from the stream, the only source for denied or interrupted calls."""
        call = self._calls.get(tool_use_id)
        if call is not None and call["result"] is None:
            call["result"] = cut(kept_result(call["input"], self._said(result)), discreet=self._discreet)
            call["is_error"] = is_error

    def adopt(self, agent: TurnBuffer) -> None:
        """Add a subagent's tool calls to this turn."""
        self._calls.update(agent._calls)
        self.keys += agent.keys

    def snapshot(self) -> dict[str, Any]:
        """Return the data that each journal entry needs to restore the turn without the stream."""
        told = {"trigger": self.trigger, "mission_id": self.mission_id, "texts": self._texts}
        if self.asked_by is not None:
            told["asked_by"] = self.asked_by
        return told if self.within is None else {**told, **self.within.place}

    @property
    def place(self) -> dict[str, Any]:
        """Return the reference to this turn that a subagent's journal entries store."""
        return {"within": self.key, "texts": self._texts}

    @classmethod
    def replayed(cls, key: str, entries: Sequence[JournalEntry]) -> TurnBuffer:
        """Restore a turn, with its subagents' calls, from the journal of a killed process."""
        buffer = cls(entries[0].session_id, key=key)
        buffer.keys = list(dict.fromkeys([key, *(entry.turn_key for entry in entries)]))
        for entry in entries:
            data = entry.data
            if entry.turn_key == key:
                buffer.trigger = data["trigger"]
                buffer.mission_id = data["mission_id"]
                buffer.asked_by = data.get("asked_by")
            buffer._texts = list(data["texts"])
            if entry.event == "prompt":
                buffer.user_message = data["user_message"]
                buffer.pasted = to_spans(data["pasted"])
            elif entry.event == "notice":
                buffer.add_notice(data["notice"])
            elif entry.event in {"start", "tool"}:
                buffer._calls[data["call"]["tool_use_id"]] = data["call"]
            elif entry.event == "stop":
                buffer.set_last_message(data["message"])
        return buffer

    def observation(self, outcome: Outcome, notice: str = "") -> NewObservation:
        """Return the turn in its logged form."""
        calls: list[Mapping[str, Any]] = [
            call if call["result"] is not None else {**call, "result": "[no result: the turn ended first]"}
            for call in self._calls.values()
        ]
        asked = self.discreet_message
        return NewObservation(
            session_id=self.session_id,
            user_message=asked.text,
            tool_calls=calls,
            # After an empty answer, the CLI repeats the last message of an earlier turn.
            agent_response="\n\n".join(self._texts) or ("" if outcome == "error" else self._last_message),
            outcome=outcome,
            mission_id=self.mission_id,
            trigger=self.trigger,
            notice="\n".join([*self._notices, self._discreet(clean(notice))]).strip(),
            processed=OFF_RECORD if self.trigger == "user" and is_off_record(asked.own) else WAITING,
            asked_by=self.asked_by,
            pasted=asked.pasted,
        )

    def _kept(self, text: str) -> str:
        return self._discreet(without_memory(clean(text)))

    def _said(self, result: Any) -> str:
        """Return the text of a tool's result without the text that Sprite's memory added."""
        return without_memory(result_text(result, self._discreet))


_REPORTS = re.compile(r"<task-id>([\w-]{1,128})</task-id>")
_NOTIFICATION = "<task-notification>"


class Subagents:
    """Keep the tool calls of one session's subagents until a turn takes them."""

    def __init__(self, make: Callable[[], TurnBuffer]) -> None:
        #: The buffer of each agent, made when it is first asked for.
        self.buffers: defaultdict[str, TurnBuffer] = defaultdict(make)
        #: Tool call that started each agent.
        self._started_by: dict[str, str] = {}
        self._in_background: set[str] = set()

    def started(self, agent_id: str, tool_use_id: str) -> None:
        """Register the tool call that started an agent."""
        self._started_by[agent_id] = tool_use_id

    def note_launch(self, tool_use_id: str, result: Any) -> None:
        """Register the agent that a tool's result names, and whether it runs in the background."""
        if isinstance(result, dict) and isinstance(agent_id := result.get("agentId"), str):
            self.started(agent_id, tool_use_id)
            if result.get("isAsync") is True:
                self._in_background.add(agent_id)

    def works_in(self, agent_id: str, turn: TurnBuffer, prompt_id: str) -> bool:
        """Return whether this turn waits for the subagent. Compare prompt ids if its starting call is unknown."""
        if agent_id in self._in_background:
            return False
        call = self._started_by.get(agent_id)
        return turn.prompt_id == prompt_id if call is None else turn.known(call) is not None

    def take_foreground(self, turn: TurnBuffer) -> Iterator[TurnBuffer]:
        """Take the buffers of agents that this turn's calls waited for."""
        for agent_id in list(self.buffers):
            call = self._started_by.get(agent_id)
            if call is not None and agent_id not in self._in_background and turn.known(call):
                yield from self._take(agent_id)

    def take_reported(self, notice: str) -> Iterator[TurnBuffer]:
        """Take the buffers of the agents in a notice, or all if it names none."""
        if notice.startswith(_NOTIFICATION):
            named = _REPORTS.findall(notice)
            for agent_id in ["", *named] if named else list(self.buffers):
                yield from self._take(agent_id)

    def take_rest(self) -> Iterator[TurnBuffer]:
        """Take all buffers at the end of the session, and forget its agents."""
        for agent_id in list(self.buffers):
            yield from self._take(agent_id)
        self._started_by.clear()
        self._in_background.clear()

    def _take(self, agent_id: str) -> Iterator[TurnBuffer]:
        buffer = self.buffers.pop(agent_id, None)
        if buffer is not None:
            yield buffer
            yield from self.take_foreground(buffer)
