"""Split a turn into its texts and their speakers (pure): the person, pasted text, the agent and its tools."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from sprite.curation.provenance import kinds
from sprite.curation.provenance.kinds import WEB_TOOLS, kind_of
from sprite.curation.provenance.quotes import Spoken
from sprite.log.transcript import Observation
from sprite.protocol.pasted import Spans, own_text

#: `person`: the person's own words. `source`: a message for which no client proves that a human typed it.
Kind = Literal["person", "source", "pasted", "reply", "input"] | kinds.Kind
#: Texts of any author. After one of them, the agent's own question may be a stranger's.
UNTRUSTED: frozenset[Kind] = frozenset({"source", "pasted", "printed", "document", "outside"})

_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})")
_QUOTED_LINE = re.compile(r"[ \t]*>")
#: A line of a mail's header: its name and its value.
_HEADER = re.compile(r"\s*[^\W\d_][\w -]{0,24}:\s+\S")
_ADDRESS = re.compile(r"[\w.+-]+@[\w-]+\.\w")


def own_words(text: str, pasted: Spans = ()) -> tuple[str, list[str]]:
    """Return a message without its pasted parts, and these parts.

    `pasted` are the spans that the client marked. Fences, `>` quotes and mails with a header need no mark.
    """
    parts = [text[start:end] for start, end in pasted]
    lines = (own_text(text, pasted) if pasted else text).split("\n")
    own: list[str] = []
    at = 0
    while at < len(lines):
        end = at
        if fence := _FENCE.match(lines[at]):
            after = range(at + 1, len(lines))
            end = next((end + 1 for end in after if lines[end].strip().startswith(fence[1])), len(lines))
        elif _QUOTED_LINE.match(lines[at]):
            end = at + 1
        elif not at or not _HEADER.match(lines[at - 1]):
            # A mail ends with the message. Its block of headers is read from the first line on.
            header = at
            while header < len(lines) and _HEADER.match(lines[header]):
                header += 1
            if header - at > 1 and any(_ADDRESS.search(line) for line in lines[at:header]):
                end = len(lines)
        own.append(lines[at] if end == at else "")
        if end > at:
            parts.append("\n".join(lines[at:end]))
        at = max(end, at + 1)
    return "\n".join(own), [part for part in parts if part.strip()]


@dataclass(frozen=True)
class Voice(Spoken):
    """A text of a turn with its speaker. `origin` is the origin of learnings that rest on it."""

    origin: str
    kind: Kind


class Turn:
    """A logged turn, split into its speakers' texts: `own` are the person's own words, empty if they said nothing.

    `is_persons`: a person typed its message, as far as clients can prove it.
    """

    def __init__(self, logged: Observation) -> None:
        self.logged = logged
        self.is_persons = logged.trigger == "user" and logged.source is None
        own, pasted = own_words(logged.user_message, logged.pasted) if self.is_persons else ("", [])
        self.own, self._pasted = own.strip(), pasted

    @cached_property
    def voices(self) -> list[Voice]:
        """Return the turn's texts, in the order in which a quote is looked for."""
        turn = self.logged
        if self.is_persons:
            found = [Voice(self.own, "user", "person"), *(Voice(part, "pasted", "pasted") for part in self._pasted)]
        elif turn.trigger == "user":
            found = [Voice(turn.user_message, turn.source or "program", "source")]
        else:
            found = [Voice(turn.user_message, "program" if turn.trigger == "program" else "tool", "outside")]
        for call in turn.tool_calls:
            found += _of_call(call)
        found += [Voice(turn.agent_response, "assistant", "reply"), Voice(turn.notice, "tool", "outside")]
        return [voice for voice in found if voice.text]

    def done(self, shown: str = "") -> list[str]:
        """Return the inputs of the turn's tool calls that did not fail, or whose result has the quote `shown`."""
        calls = [
            call
            for call in self.logged.tool_calls
            if not call.get("is_error")
            or (shown and any(voice.kind == "result" and shown in voice.text for voice in _of_call(call)))
        ]
        return [voice.text for call in calls for voice in _of_call(call) if voice.kind == "input"]

    @property
    def worked(self) -> list[str]:
        """Return what the agent asked its tools for, and what commands on this computer answered."""
        return [voice.text for voice in self.voices if voice.kind in {"input", "result"}]

    @cached_property
    def reads_untrusted(self) -> bool:
        """Return whether the agent read text of any author in this turn."""
        return any(voice.kind in UNTRUSTED for voice in self.voices)


def _of_call(call: Mapping[str, Any]) -> Iterator[Voice]:
    given, result = call.get("input"), call.get("result")
    command = given.get("command") if isinstance(given, Mapping) else None
    if isinstance(command, str):
        yield Voice(command, "assistant", "input")
    yield Voice(text_of(given), "assistant", "input")
    kind = kind_of(call)
    is_web = kind == "outside" and str(call.get("name", "")) in WEB_TOOLS
    origin = "web" if is_web else {"document": "file", "outside": "outside"}.get(kind, "tool")
    if str(call.get("origin")).startswith("tool:"):
        origin = str(call["origin"])
    yield Voice(text_of(result), origin, kind)
    # The curator is shown these as JSON, and a quote may reach across their fields.
    if isinstance(given, dict | list):
        yield Voice(json.dumps(given, ensure_ascii=False), "assistant", "input")
    if isinstance(result, dict | list):
        yield Voice(json.dumps(result, ensure_ascii=False), origin, kind)


def text_of(value: Any) -> str:
    """Return the readable text of a tool's input or result."""
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return "\n".join(text_of(item) for item in value.values())
    if isinstance(value, list):
        return "\n".join(text_of(item) for item in value)
    return "" if value is None else json.dumps(value)
