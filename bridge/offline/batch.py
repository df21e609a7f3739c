"""Parse a curation request: turns, open learnings and memory files, read tolerantly from its tags.

Text between tags is XML-escaped, so no text of a person or a tool can close a tag. Pure.
"""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

_ATTRIBUTE = re.compile(r'([\w-]+)="([^"]*)"')
_LINE_NUMBER = re.compile(r"^[0-9]+\| ?", re.MULTILINE)
_TOOL_PART = re.compile(r"<input>(.*?)</input>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call of the agent; `input` is its input, empty unless it is a JSON object."""

    name: str
    input: dict[str, object]
    raw_input: str
    is_error: bool


@dataclass(frozen=True, slots=True)
class Turn:
    """One observation; `at` is an ISO time, `origin` is "user" if a person asked for it."""

    id: str
    at: str
    origin: str
    user: str
    tools: tuple[ToolCall, ...]


@dataclass(frozen=True, slots=True)
class KnownLearning:
    """An open learning in the batch."""

    id: str
    type: str
    text: str


@dataclass(frozen=True, slots=True)
class MemoryFile:
    """A curated file; `limit` is in lines."""

    name: str
    content: str
    limit: int


@dataclass(frozen=True, slots=True)
class Batch:
    """The content of a curation request."""

    turns: tuple[Turn, ...]
    learnings: tuple[KnownLearning, ...]
    files: dict[str, MemoryFile]


def parse_batch(text: str) -> Batch:
    """Parse the user content of a curation request; unknown parts are ignored."""
    return Batch(
        turns=tuple(_turn(attributes, content) for attributes, content in _elements("turn", text)),
        learnings=tuple(
            KnownLearning(attributes.get("id", ""), attributes.get("type", ""), html.unescape(content).strip())
            for attributes, content in _elements("learning", text)
        ),
        files={
            attributes["name"]: _file(attributes, content)
            for attributes, content in _elements("memory_file", text)
            if "name" in attributes
        },
    )


def _elements(tag: str, text: str) -> Iterator[tuple[dict[str, str], str]]:
    for found in re.finditer(rf"<{tag}\b([^>]*)>(.*?)</{tag}>", text, re.DOTALL):
        yield {name: html.unescape(value) for name, value in _ATTRIBUTE.findall(found[1])}, found[2]


def _turn(attributes: dict[str, str], content: str) -> Turn:
    user = next((said for _, said in _elements("user", content)), "")
    return Turn(
        id=attributes.get("id", ""),
        at=attributes.get("at", ""),
        origin=attributes.get("origin", "user"),
        user=html.unescape(user).strip(),
        tools=tuple(_tool(given, inner) for given, inner in _elements("tool", content)),
    )


def _tool(attributes: dict[str, str], content: str) -> ToolCall:
    found = _TOOL_PART.search(content)
    raw = html.unescape(found[1]).strip() if found else ""
    try:
        arguments = msgspec.json.decode(raw, type=dict[str, object])
    except msgspec.MsgspecError:
        # The curator gets long inputs truncated, which is no valid JSON.
        arguments = {}
    return ToolCall(attributes.get("name", ""), arguments, raw, attributes.get("error", "false") == "true")


def _file(attributes: dict[str, str], content: str) -> MemoryFile:
    limit = attributes.get("limit", "")
    return MemoryFile(
        name=attributes["name"],
        content=_LINE_NUMBER.sub("", html.unescape(content).strip("\n")),
        limit=int(limit) if limit.isdecimal() else 200,
    )
