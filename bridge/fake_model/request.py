"""Interpret a request to the Messages API: its sender and the person's own words in it.

The Claude CLI wraps a person's words in much other text, so this module owns the discriminators, each observed
on CLI 2.1.329:

- a compaction request has all tools, and a last user text that begins "CRITICAL: Respond with TEXT ONLY";
- a finished background task arrives as a user text `<system-reminder>...<task-notification>`;
- a message sent while a turn runs arrives with role "system": "The user sent a new message while ...";
- the working directory and hook contexts also arrive with role "system";
- after a local command (`/compact`, `/cost`), its echo is user text before the next real one.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any, Literal

import msgspec

Kind = Literal["agent", "compaction", "curator", "verifier"]

CURATOR_MARKER = "You are Sprite's memory curator"
VERIFIER_MARKER = "You verify memory lines."

_COMPACTION = re.compile(r"\A(?:CRITICAL: Respond with TEXT ONLY|Your task is to create a detailed summary of)")
_MID_TURN = re.compile(
    r"The user sent a new message while you were working:\n(.*?)\n\n(?:This is how Claude Code|IMPORTANT:)", re.DOTALL
)
_CWD = re.compile(r"[Ww]orking directory: (\S.*)")
_COMMAND_ECHO = ("<local-command-", "<command-name>", "<command-message>", "[Image: source:")


class Message(msgspec.Struct):
    """One message: `content` is a string or a list of content blocks."""

    role: Literal["user", "assistant", "system"]
    content: str | list[dict[str, Any]]


class Body(msgspec.Struct):
    """The fields of a Messages request that the fake model reads; all others are ignored."""

    model: str
    messages: Annotated[list[Message], msgspec.Meta(min_length=1)]
    system: str | list[dict[str, Any]] = ""
    tools: list[dict[str, Any]] = []
    stream: bool = False


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """A tool call in the conversation with its result."""

    name: str
    input: dict[str, Any]
    text: str
    is_error: bool


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One event of the conversation; `outcome` is set when `kind` is "result"."""

    kind: Literal["user", "notification", "result", "assistant", "interrupted", "summary", "compaction"]
    text: str
    outcome: ToolOutcome | None = None


@dataclass(frozen=True)
class Request:
    """An interpreted request.

    `system` is the system prompt; `context` is the CLI's addition (role "system" messages); `timeline` is the
    conversation, oldest first.
    """

    kind: Kind
    system: str
    context: str
    tools: frozenset[str]
    timeline: tuple[TimelineEntry, ...]

    @cached_property
    def user_texts(self) -> tuple[str, ...]:
        """Return all messages of a person (or a subagent's parent), oldest first."""
        return tuple(entry.text for entry in self.timeline if entry.kind == "user")

    @cached_property
    def user_text(self) -> str:
        """Return the last message of a person."""
        return self.user_texts[-1] if self.user_texts else ""

    @cached_property
    def tail(self) -> tuple[TimelineEntry, ...]:
        """Return the entries after the model's last answer."""
        spoken = [index for index, entry in enumerate(self.timeline) if entry.kind == "assistant"]
        return self.timeline[spoken[-1] + 1 :] if spoken else self.timeline

    @cached_property
    def outcomes(self) -> tuple[ToolOutcome, ...]:
        """Return the tool results that the model has not answered; none after an interrupt."""
        if any(entry.kind == "interrupted" for entry in self.tail):
            return ()
        return tuple(entry.outcome for entry in self.tail if entry.outcome)

    @property
    def has_new_text(self) -> bool:
        """Return whether a person wrote after the model's last answer."""
        return any(entry.kind == "user" for entry in self.tail)

    @cached_property
    def cwd(self) -> str:
        """Return the agent's working directory; empty if the request does not contain it."""
        found = _CWD.findall(f"{self.system}\n{self.context}")
        return str(found[-1]).strip() if found else ""


def understand(body: Body) -> Request:
    """Turn a decoded body into a `Request`."""
    system = _text_of(body.system)
    kind = _kind_of_memory(system)
    if kind is not None:
        # It quotes whole conversations: none of its text is the CLI's own wrapping.
        timeline = tuple(TimelineEntry("user", _text_of(m.content)) for m in body.messages if m.role == "user")
    else:
        timeline = tuple(_timeline(body.messages))
        kind = "compaction" if timeline and timeline[-1].kind == "compaction" else "agent"
    tools = frozenset(str(tool["name"]) for tool in body.tools if "input_schema" in tool and "name" in tool)
    return Request(
        kind=kind,
        system=system,
        context="\n".join(_text_of(message.content) for message in body.messages if message.role == "system"),
        tools=tools,
        timeline=timeline,
    )


def _kind_of_memory(system: str) -> Kind | None:
    """Return `verifier` or `curator` if the system prompt has its marker, or None for a request from the CLI."""
    if VERIFIER_MARKER in system:
        return "verifier"
    return "curator" if CURATOR_MARKER in system else None


def _timeline(messages: Iterable[Message]) -> Iterator[TimelineEntry]:
    calls: dict[str, tuple[str, dict[str, Any]]] = {}
    for message in messages:
        if message.role == "system":
            yield from (TimelineEntry("user", text) for text in _MID_TURN.findall(_text_of(message.content)))
            continue
        blocks = message.content
        if isinstance(blocks, str):
            blocks = [{"type": "text", "text": blocks}]
        if message.role == "assistant":
            for block in blocks:
                if block.get("type") == "tool_use":
                    calls[str(block.get("id"))] = (str(block.get("name")), dict(block.get("input") or {}))
            yield TimelineEntry("assistant", _text_of(blocks))
            continue
        for block in blocks:
            if block.get("type") == "tool_result":
                yield _result(block, calls)
            elif block.get("type") == "text":
                yield from _spoken(str(block.get("text", "")))


def _result(block: dict[str, Any], calls: Mapping[str, tuple[str, dict[str, Any]]]) -> TimelineEntry:
    name, arguments = calls.get(str(block.get("tool_use_id")), ("", {}))
    content = block.get("content") or ""
    text = _text_of(content) if isinstance(content, (str, list)) else ""
    return TimelineEntry("result", text, ToolOutcome(name, arguments, text, bool(block.get("is_error"))))


def _spoken(text: str) -> Iterator[TimelineEntry]:
    """Yield a person's words and the CLI's own texts in the user role as separate entries."""
    stripped = text.strip()
    if "<task-notification>" in stripped and stripped.startswith(("<system-reminder>", "<task-notification>")):
        yield TimelineEntry("notification", stripped)
    elif not stripped or stripped.startswith(("<system-reminder>", *_COMMAND_ECHO)):
        return
    elif stripped.startswith("[Request interrupted by user"):
        yield TimelineEntry("interrupted", stripped)
    elif stripped.startswith("This session is being continued from a previous conversation"):
        yield TimelineEntry("summary", stripped)
    elif _COMPACTION.search(stripped):
        yield TimelineEntry("compaction", stripped)
    else:
        yield TimelineEntry("user", text)


def _text_of(content: str | list[dict[str, Any]]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(str(block.get("text", "")) for block in content if block.get("type") == "text")
