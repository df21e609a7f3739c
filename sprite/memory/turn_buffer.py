"""One turn in the making: what was asked, what the agent did, what it said (pure, no I/O).

Events may come twice, late or in any order between hooks and stream: tool calls are keyed by their id.
"""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sprite.database.transcript import JournalEntry, NewObservation, Outcome, Trigger
from sprite.memory.redaction import discreet, secret_members

#: Gives a text as it may be written down.
Discreet = Callable[[str], str]

#: Longest string kept of a tool call, its note of the cut included.
MAX_STRING = 2000
#: Most entries kept of a list or object in a tool's input.
MAX_ITEMS = 200
#: Longest input shown to people, as JSON: four bytes a character at most, and a frame takes a mebibyte.
MAX_SHOWN_CHARS = 100_000
#: A private key of the longest kind in use, with room.
LONGEST_SECRET = 20_000
#: Deepest nesting kept of a tool's input.
MAX_DEPTH = 12


def clean(text: str) -> str:
    """Text that SQLite and JSON can hold: lone surrogates become question marks."""
    return text.encode("utf-8", errors="replace").decode("utf-8")


def cut(text: str, limit: int = MAX_STRING, discreet: Discreet = discreet) -> str:
    """The text as it may be written down, or its beginning and how much was cut, in at most `limit` characters."""
    # Secrets go first: a cut could leave half of one. What lies far beyond the cut needs no search.
    text, left = text[: limit + LONGEST_SECRET], text[limit + LONGEST_SECRET :]
    said = discreet(clean(text))
    if left and len(said) < limit + LONGEST_SECRET // 2:
        said, left = discreet(clean(text + left)), ""
    if len(said) + len(left) <= limit:
        return said
    # The note's own length depends on the number in it; 40 characters always hold it.
    kept = limit - 40
    return f"{said[:kept]} [… {len(said) + len(left) - kept:,} characters cut]"


def cut_value(value: Any, depth: int = 0, discreet: Discreet = discreet) -> Any:
    """A JSON value as it may be written down: every string cut, and runaway lists and nesting cut as well."""
    if isinstance(value, str):
        return cut(value, discreet=discreet)
    if depth >= MAX_DEPTH and isinstance(value, dict | list):
        return "[… nested too deeply, cut]"
    if isinstance(value, dict):
        items = dict(list(value.items())[:MAX_ITEMS])
        secret = secret_members(items)
        kept = {
            cut(str(name), discreet=discreet): secret.get(name) or cut_value(item, depth + 1, discreet)
            for name, item in items.items()
        }
        if len(value) > MAX_ITEMS:
            kept["…"] = f"{len(value) - MAX_ITEMS:,} entries cut"
        return kept
    if isinstance(value, list):
        entries = [cut_value(item, depth + 1, discreet) for item in value[:MAX_ITEMS]]
        return [*entries, f"[… {len(value) - MAX_ITEMS:,} entries cut]"] if len(value) > MAX_ITEMS else entries
    return value if value is None or _plain_number(value) else cut(str(value), discreet=discreet)


def shown_input(value: dict[str, Any], discreet: Discreet = discreet) -> dict[str, Any]:
    """A tool's input as people see it: cut so that a frame holds it, whatever the agent wrote."""
    kept: dict[str, Any] = cut_value(value, discreet=discreet)
    text = json.dumps(kept, ensure_ascii=False)
    return kept if len(text) <= MAX_SHOWN_CHARS else {"…": cut(text)}


def _plain_number(value: Any) -> bool:
    """Whether this is a number that JSON has and every client can read."""
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    return isinstance(value, float) and math.isfinite(value)


def result_text(response: Any, discreet: Discreet = discreet) -> str:
    """What a tool answered, as text: the shapes that the CLI's hooks and stream give it in."""
    if isinstance(response, str):
        return response
    if isinstance(response, list):
        return "\n".join(
            str(item.get("text", ""))
            if isinstance(item, dict) and item.get("type") == "text"
            else _dump(item, discreet)
            for item in response
        )
    if isinstance(response, dict) and "stdout" in response:
        return "\n".join(part for part in (str(response["stdout"]), str(response.get("stderr") or "")) if part)
    return "" if response is None else _dump(response, discreet)


def _dump(value: Any, discreet: Discreet) -> str:
    # Cut first: what is nested too deeply could not be dumped at all.
    return json.dumps(cut_value(value, discreet=discreet), ensure_ascii=False)


class TurnBuffer:
    """Collects one turn; `key` names it in the journal."""

    def __init__(
        self,
        session_id: str,
        trigger: Trigger = "user",
        mission_id: str | None = None,
        user_message: str = "",
        key: str | None = None,
        discreet: Discreet = discreet,
    ) -> None:
        self.key = key or str(uuid.uuid4())
        self.session_id = session_id
        self.trigger = trigger
        self.mission_id = mission_id
        #: As the person wrote it, which the hook's prompt is compared with; it is written down discreetly.
        self.user_message = clean(user_message)
        self._discreet = discreet
        self.prompt_id: str | None = None
        self._notices: list[str] = []
        self._texts: list[str] = []
        self._last_message = ""
        self._calls: dict[str, dict[str, Any]] = {}

    @property
    def discreet_message(self) -> str:
        """What was asked, as it may be written down."""
        return self._discreet(self.user_message)

    @property
    def empty(self) -> bool:
        """Whether nothing has happened in it."""
        return not (self._calls or self._texts or self._last_message or self._notices)

    def add_notice(self, text: str) -> None:
        """What the CLI put into the turn by itself: never the person's words."""
        self._notices.append(self._discreet(clean(text)))

    def add_text(self, text: str) -> None:
        """A piece of the agent's reply."""
        if text.strip():
            self._texts.append(self._discreet(clean(text)))

    def set_last_message(self, text: str) -> None:
        """The reply as the Stop hook knows it: used where the stream brought none."""
        self._last_message = self._discreet(clean(text))

    def start_tool(self, tool_use_id: str, name: str, tool_input: Any, agent_id: str | None = None) -> None:
        """A tool call as it begins; what is already known of it is not overwritten.

        The stream's order is the true one: hooks of parallel calls come in the order in which these end.
        """
        known = self._calls.pop(tool_use_id, None)
        self._calls[tool_use_id] = known or self._call(tool_use_id, name, tool_input, None, agent_id, is_error=False)

    def end_tool(
        self,
        tool_use_id: str,
        name: str,
        tool_input: Any,
        result: Any,
        *,
        is_error: bool,
        agent_id: str | None = None,
    ) -> dict[str, Any]:
        """A tool call as a hook saw it end; returns it as it is kept."""
        said = result_text(result, self._discreet)
        call = self._call(tool_use_id, name, tool_input, said, agent_id, is_error=is_error)
        self._calls[tool_use_id] = call
        return call

    def tool_answered(self, tool_use_id: str, result: Any, *, is_error: bool) -> None:
        """The stream's word on how a call ended: all there is where it was denied or interrupted."""
        call = self._calls.get(tool_use_id)
        if call is not None and call["result"] is None:
            call["result"] = cut(result_text(result, self._discreet), discreet=self._discreet)
            call["is_error"] = is_error

    def knows_tool(self, tool_use_id: str) -> bool:
        """Whether this turn made that call."""
        return tool_use_id in self._calls

    def snapshot(self) -> dict[str, Any]:
        """What a journal entry needs beside its own event, so that the turn can be told without the stream."""
        return {"trigger": self.trigger, "mission_id": self.mission_id, "texts": self._texts}

    @classmethod
    def replayed(cls, entries: Sequence[JournalEntry]) -> TurnBuffer:
        """The turn that a killed process left in its journal."""
        first = entries[0]
        buffer = cls(first.session_id, key=first.turn_key)
        for entry in entries:
            data = entry.data
            buffer.trigger = data["trigger"]
            buffer.mission_id = data["mission_id"]
            buffer._texts = list(data["texts"])
            if entry.event == "prompt":
                buffer.user_message = data["user_message"]
            elif entry.event == "notice":
                buffer.add_notice(data["notice"])
            elif entry.event == "tool":
                buffer._calls[data["call"]["tool_use_id"]] = data["call"]
            elif entry.event == "stop":
                buffer.set_last_message(data["message"])
        return buffer

    def observation(self, outcome: Outcome, notice: str = "") -> NewObservation:
        """The turn as it is written into the log."""
        calls: list[Mapping[str, Any]] = [
            call if call["result"] is not None else {**call, "result": "[no result: the turn ended first]"}
            for call in self._calls.values()
        ]
        return NewObservation(
            session_id=self.session_id,
            user_message=self.discreet_message,
            tool_calls=calls,
            agent_response="\n\n".join(self._texts) or self._last_message,
            outcome=outcome,
            mission_id=self.mission_id,
            trigger=self.trigger,
            notice="\n".join([*self._notices, self._discreet(clean(notice))]).strip(),
        )

    def _call(
        self, tool_use_id: str, name: str, tool_input: Any, result: str | None, agent_id: str | None, *, is_error: bool
    ) -> dict[str, Any]:
        call: dict[str, Any] = {
            "tool_use_id": tool_use_id,
            "name": cut(name),
            "input": cut_value(tool_input, discreet=self._discreet),
            "result": None if result is None else cut(result, discreet=self._discreet),
            "is_error": is_error,
        }
        if agent_id:
            call["agent_id"] = agent_id
        return call
