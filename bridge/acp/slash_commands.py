"""Slash commands for editors: a new session, the memory and a search in it.

Any other text after a slash goes to the agent, since it may be a path.
"""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from acp.schema import AvailableCommand, AvailableCommandInput, TextContentBlock, UnstructuredCommandInput

from bridge.acp.tool_calls import fenced
from bridge.chat.command import MODEL_SECONDS
from bridge.chat.counted import counted
from bridge.chat.untrusted import clean, one_line
from sprite.protocol.memory import (
    FileRequest,
    FileResult,
    FilesRequest,
    FilesResult,
    LearningsRequest,
    LearningsResult,
    SearchRequest,
    SearchResult,
)
from sprite.protocol.messages import Status, System

if TYPE_CHECKING:
    from collections.abc import Sequence

    from acp.helpers import ContentBlock

    from bridge.acp.conversation import Conversation
    from sprite.protocol.rows import SearchHit
    from sprite.protocol.shapes import FileState

_LEARNINGS = 8
_HITS = 10
_HIT_CHARS = 300
_HINTS = {
    "new": ("ends this session with the agent; what was said is remembered", None),
    "go-on": ("lets a paused agent go on; without money, raises today's limit", None),
    "memory": ("what is remembered, or one of its files", "a file, such as user.md"),
    "search": ("searches everything ever said and learned", "what for, in your own words"),
}

COMMANDS = [
    AvailableCommand(
        name=name,
        description=does,
        input=None if hint is None else AvailableCommandInput(root=UnstructuredCommandInput(hint=hint)),
    )
    for name, (does, hint) in _HINTS.items()
]


def command_in(prompt: Sequence[ContentBlock]) -> tuple[str, str] | None:
    """Return the command of a message and the rest of its line, or None."""
    if len(prompt) != 1 or not isinstance(prompt[0], TextContentBlock):
        return None
    name, _, rest = prompt[0].text.strip().partition(" ")
    return (name[1:], rest.strip()) if name[:1] == "/" and name[1:] in _HINTS else None


async def answer(conversation: Conversation, name: str, rest: str) -> str:
    """Run a command and return its result as Markdown. Raises RequestError if the sprite does not answer."""
    match name:
        case "new":
            return await _new(conversation)
        case "go-on":
            return await _go_on(conversation)
        case "memory":
            return await (_file(conversation, rest) if rest else _memory(conversation))
        case _:
            return await _search(conversation, rest)


async def _new(conversation: Conversation) -> str:
    ended = await conversation.ask(System(action="new_session"), Status, MODEL_SECONDS)
    stopped = f" {counted(len(ended.stopped), 'thing')} that went on was stopped with it." if ended.stopped else ""
    return f"A new session begins with your next message. What was said is remembered.{stopped}"


async def _go_on(conversation: Conversation) -> str:
    paused = conversation.paused
    if paused is None:
        return "Nothing is paused."
    await conversation.ask(System(action="go_on", raise_limit=paused.by == "budget"), Status)
    return "It goes on."


async def _memory(conversation: Conversation) -> str:
    files = await conversation.ask(FilesRequest(), FilesResult)
    newest = await conversation.ask(LearningsRequest(limit=_LEARNINGS, newest=True), LearningsResult)
    learned = [f"- {_day(row.created_at)} · {row.type} · {_short(row.content)}" for row in newest.learnings]
    return "\n".join(
        [
            *(_file_line(file) for file in files.files),
            "",
            *(learned or ["Nothing learned yet: that happens once a few turns have rested."]),
            "",
            "`/memory user.md` shows a file, `/search` finds anything.",
        ]
    )


async def _file(conversation: Conversation, name: str) -> str:
    found = await conversation.ask(FileRequest(name), FileResult)
    return fenced(clean(found.content).strip() or "(empty)")


async def _search(conversation: Conversation, query: str) -> str:
    if not query:
        return "What for? `/search` and a few words of your own."
    found = await conversation.ask(SearchRequest(query, _HITS), SearchResult)
    waiting = [f"{counted(found.waiting, 'turn')} not looked through for learnings yet."] if found.waiting else []
    return "\n".join([*(map(_hit, found.hits) if found.hits else ["Nothing found."]), *found.notes, *waiting])


def _file_line(file: FileState) -> str:
    size = f"{file.lines}/{file.limit}" if file.managed == "curated" and file.limit else str(file.lines)
    return f"- `{one_line(file.name)}` · {size} lines"


def _hit(hit: SearchHit) -> str:
    """Return a search hit as a list item, with its turn."""
    kind = hit.type if hit.kind == "learning" else "said"
    turn = f"turn {hit.turn_id}" if hit.turn_id is not None else "no turn"
    gone = " (replaced since)" if hit.superseded_by else ""
    project = f" · project {one_line(hit.project)}" if hit.project is not None else ""
    return f"- {turn} · {_day(hit.at)}{project} · {kind}{gone}: {_short(hit.text)}"


def _short(text: str) -> str:
    line = one_line(text)
    return line[:_HIT_CHARS] + (" …" if len(line) > _HIT_CHARS else "")


def _day(at: float) -> str:
    return datetime.fromtimestamp(at).astimezone().strftime("%Y-%m-%d")
