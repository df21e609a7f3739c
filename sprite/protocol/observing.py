"""Turns that other programs recorded, and the keys of their projects (pure). Times are Unix seconds."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct, field

from sprite.errors import PeerError
from sprite.protocol.shapes import ClientPayload, ServerPayload

#: The receiver refuses input above these limits. They apply to one call: a frame holds less, so a call of this size
#: is forwarded in several frames.
MAX_OBSERVED_TURNS = 500
MAX_OBSERVED_BYTES = 8 * 1024 * 1024
#: Limit for the turns of one message, so that they fit a frame, and a turn fits the log's limit for displayed ones.
MOST_TURN_BYTES = 900_000
#: Successive limits for long texts in the tool calls of a larger turn. A sprite keeps far less than the first.
_SHORTER = (64 * 1024, 1000, 400, 100)
#: The name is shown beside each turn and stored with it.
MAX_SOURCE_CHARS = 40
MAX_PROJECT_CHARS = 1_000
MAX_EXTERNAL_ID_CHARS = 200


class ObservedTool(Struct):
    """A tool call of an observed turn. Its texts are cut and redacted as in any turn."""

    name: str
    tool_use_id: str = ""
    input: Any = None
    result: Any = None
    is_error: bool = False
    agent_id: str | None = None


class ObservedTurn(Struct):
    """A turn that has ended. `external_id` is its permanent id; it ran from `started_at` to `at`.

    `user` is the person's message. It is empty if nobody wrote one (a background task has ended); `notice` then has
    the reason.
    """

    external_id: str
    session: str
    at: float
    user: str = ""
    tools: list[ObservedTool] = field(default_factory=list)
    reply: str = ""
    outcome: Literal["complete", "interrupted", "error", "max_turns", "crashed"] = "complete"
    notice: str = ""
    started_at: float | None = None


class Observe(ClientPayload):
    """Turns of one program and one project (null: the person's own), oldest first."""

    source: str
    turns: list[ObservedTurn]
    project: str | None = None


class RefusedTurn(Struct):
    """A refused turn, with the reason in words."""

    external_id: str
    why: str


class Observed(ServerPayload, omit_defaults=False):
    """The number of turns written, the number already in the log, and the refused ones."""

    stored: int
    known: int
    refused: list[RefusedTurn]


def fitted(turn: ObservedTurn) -> int:
    """Shorten a turn's tool calls until it fits one message, if that is enough. Return its size in bytes."""
    size = len(msgspec.json.encode(turn))
    for most in _SHORTER:
        if size <= MOST_TURN_BYTES:
            break
        for tool in turn.tools:
            tool.input, tool.result = _shortened(tool.input, most), _shortened(tool.result, most)
        size = len(msgspec.json.encode(turn))
    calls, notice = len(turn.tools), turn.notice
    while size > MOST_TURN_BYTES and turn.tools:
        turn.tools = turn.tools[: len(turn.tools) // 2]
        turn.notice = f"{notice}\n{calls - len(turn.tools)} more tool calls of this turn are not kept.".strip()
        size = len(msgspec.json.encode(turn))
    return size


def packed(source: str, project: str | None, turns: Iterable[ObservedTurn]) -> Iterator[Observe]:
    """Yield the turns as `observe` messages, in order, each within MOST_TURN_BYTES and MAX_OBSERVED_TURNS.

    A turn that is larger than the limit gets a message to itself.
    """
    held: list[ObservedTurn] = []
    size = 0
    for turn in turns:
        length = fitted(turn)
        if held and (size + length > MOST_TURN_BYTES or len(held) == MAX_OBSERVED_TURNS):
            yield Observe(source, held, project)
            held, size = [], 0
        held.append(turn)
        size += length + 1
    if held:
        yield Observe(source, held, project)


def _shortened(value: Any, most: int) -> Any:
    if isinstance(value, str) and len(value) > most:
        return f"{value[:most]}... [cut: {len(value) - most} more characters]"
    if isinstance(value, dict):
        return {name: _shortened(part, most) for name, part in value.items()}
    return [_shortened(part, most) for part in value] if isinstance(value, list) else value


_SCHEMES = frozenset({"http", "https", "ssh", "git", "file"})
#: `git@host:owner/repository`: the user of such an address is the service's, not a secret.
_SCP_LIKE = re.compile(r"\A[\w.-]{1,64}@[\w.-]{1,253}:[^\s:@]+\Z")
_DRIVE = re.compile(r"\A[A-Za-z]:[\\/]")
#: Unicode line separators beside the control characters, and the signs that change the text direction.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})


def project_key(text: str) -> str:
    """Return the key without surrounding spaces and trailing slashes. Raises PeerError if it is invalid."""
    if len(text) > MAX_PROJECT_CHARS:
        raise _refused(f"it has {len(text):,} characters, {MAX_PROJECT_CHARS:,} are allowed")
    if any(unicodedata.category(sign) in _UNSEEN for sign in text):
        raise _refused("it has a line end or another character that is not shown")
    text = text.strip()
    if not text:
        raise _refused("it is empty")
    if "://" in text:
        return _address(text)
    if _SCP_LIKE.match(text):
        return text.rstrip("/")
    if text.startswith("//"):
        raise _refused("it begins with two slashes")
    path = PureWindowsPath(text) if _DRIVE.match(text) else PurePosixPath(text)
    if not path.is_absolute():
        raise _refused("it is no whole path, which begins with /, and no repository's address")
    if ".." in path.parts:
        raise _refused("it goes upwards with ..; give the folder's own path")
    return str(path)


def project_or_name(text: str) -> str:
    """Return the key, or a folder name by which people may ask for it. Raises PeerError if it is neither."""
    return text if _is_name(text) else project_key(text)


def others_project(given: str | None, own: str | None) -> str | None:
    """Return a turn's project key, or None if the turn is the person's own.

    It is the person's own if no key is `given`, or the key is that of the sprite's workspace (`own`). Raises
    PeerError for an invalid key.
    """
    if given is None:
        return None
    key = project_key(given)
    return None if key == own else key


def _is_name(text: str) -> bool:
    if len(text) > MAX_PROJECT_CHARS or text.strip() in {"", ".", ".."}:
        return False
    return not any(sign in "/\\" or unicodedata.category(sign) in _UNSEEN for sign in text)


def _address(text: str) -> str:
    try:
        parts = urlsplit(text)
        secret = parts.password is not None or (parts.username is not None and parts.scheme != "ssh")
        host = parts.hostname
    except ValueError as error:
        raise _refused("it is no address") from error
    if parts.scheme not in _SCHEMES or not (host or parts.scheme == "file"):
        raise _refused("it is no address of a repository")
    if secret:
        raise _refused("the address has a user or a password in it; give it without them")
    if parts.query or parts.fragment:
        raise _refused("the address has ? or # in it; give the repository's own")
    if ".." in parts.path.split("/"):
        raise _refused("it goes upwards with ..")
    return text.rstrip("/")


def _refused(why: str) -> PeerError:
    return PeerError(
        f"The project is no key: {why}. A key is the whole path of a project's folder, or its repository's address.",
        code="bad_project",
    )
