"""Entries of Claude Code's session logs: parse their lines, classify each speaker, and count what is skipped (pure)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum, auto
from pathlib import Path
from typing import Annotated, Any

import msgspec

#: A message with pictures can be large; longer lines are not read.
MAX_LINE_BYTES = 64 * 1024 * 1024
#: Earlier or later times are invalid: they would break calendars.
EARLIEST, LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)
#: The sprite stores a session's id and shows it in terminals, and people type it into `session:` filters.
SESSION_ID = r"\A[A-Za-z0-9][A-Za-z0-9_.-]{0,127}\Z"
ENTRY_ID = r"\A[!-~]{1,128}\Z"


def _in_utc(moment: datetime) -> datetime:
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


class UnreadableError(ValueError):
    """The data cannot be imported; the message gives the reason."""


class Block(msgspec.Struct):
    """A content block of the Messages API: the fields that a turn needs."""

    type: str
    text: str | None = None
    id: str | None = None
    name: str | None = None
    input: Any = None
    tool_use_id: str | None = None
    content: Any = None
    is_error: bool | None = None


class Body(msgspec.Struct):
    """The field `message` of an entry; logs of older versions have no `stop_reason` in it."""

    content: str | list[Block] = ""
    model: str | None = None
    stop_reason: str | None = None


class Attachment(msgspec.Struct, rename="camel"):
    """Content that the CLI attached: a queued message, the stop by `max_turns`, and more."""

    type: str
    prompt: str | list[Block] = ""
    command_mode: str | None = None
    origin: Any = None


class Entry(msgspec.Struct, rename="camel"):
    """One entry of a conversation; `type` is "user", "assistant" or "attachment"."""

    type: str
    uuid: Annotated[str, msgspec.Meta(pattern=ENTRY_ID)]
    timestamp: datetime
    session_id: Annotated[str, msgspec.Meta(pattern=SESSION_ID)]
    message: Body | None = None
    attachment: Attachment | None = None
    is_sidechain: bool | None = None
    is_meta: bool | None = None
    is_compact_summary: bool | None = None
    is_visible_in_transcript_only: bool | None = None
    is_api_error_message: bool | None = None
    is_aborted_mid_stream: bool | None = None
    agent_id: str | None = None
    cwd: Any = None
    prompt_source: str | None = None
    turn_origin: str | None = None
    origin: Any = None

    @property
    def at(self) -> float:
        """Return the time at which the entry was written, in Unix seconds."""
        return _in_utc(self.timestamp).timestamp()

    @property
    def blocks(self) -> list[Block]:
        """Return the entry's message as content blocks."""
        return as_blocks(self.message.content) if self.message else []


class Head(msgspec.Struct, rename="camel"):
    """The fields that distinguish a line of a session log, of any kind, from other JSON."""

    type: str
    timestamp: Any = None
    session_id: Any = None
    leaf_uuid: Any = None
    message_id: Any = None
    uuid: Any = None

    @property
    def at(self) -> float | None:
        """Return the time at which the line was written in Unix seconds, or None if it is missing or invalid."""
        try:
            moment = _in_utc(datetime.fromisoformat(self.timestamp))
        except (TypeError, ValueError):
            return None
        return moment.timestamp() if EARLIEST <= moment < LATEST else None


#: All other entries (requests, costs, titles, snapshots of files) are the CLI's bookkeeping.
_CONVERSATION = frozenset({"user", "assistant", "attachment"})
#: The attachments that belong to a turn; the others tell the model about its environment.
_ATTACHMENTS = frozenset({"queued_command", "max_turns_reached"})
_head = msgspec.json.Decoder(Head)
_entry = msgspec.json.Decoder(Entry)


def read_line(line: bytes) -> Entry | None:
    """Return the entry of a line, or None for bookkeeping. UnreadableError if the line is unusable."""
    if len(line) > MAX_LINE_BYTES:
        raise UnreadableError(f"longer than {MAX_LINE_BYTES // 2**20} MiB")
    try:
        return _checked(_read(line))
    except msgspec.ValidationError as error:
        raise UnreadableError(f"wrong shape: {error}") from error
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise UnreadableError(f"not JSON: {str(error).partition(chr(10))[0]}") from error


def read_head(line: bytes) -> Head | None:
    """Return the head of a session log's line, or None for any other line."""
    try:
        head = _head.decode(line)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return None if head.session_id is head.leaf_uuid is head.message_id is head.uuid is None else head


def _read(line: bytes) -> Entry | None:
    try:
        head = _head.decode(line)
        return _entry.decode(line) if head.type in _CONVERSATION else None
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        # The CLI writes lone surrogates as it gets them, and some versions write NaN; Python's reader accepts both.
        value = json.loads(line)
        head = msgspec.convert(value, Head)
        return msgspec.convert(value, Entry) if head.type in _CONVERSATION else None


def _checked(entry: Entry | None) -> Entry | None:
    if entry is None:
        return None
    if not EARLIEST <= _in_utc(entry.timestamp) < LATEST:
        raise msgspec.ValidationError(
            f"{entry.timestamp.isoformat()} is not a possible time of a session - at `$.timestamp`"
        )
    if entry.type == "attachment":
        return entry if entry.attachment is not None and entry.attachment.type in _ATTACHMENTS else None
    if entry.message is None:
        raise msgspec.ValidationError("Object missing required field `message`")
    return entry


def as_blocks(content: str | list[Block]) -> list[Block]:
    """Return a message's content, a string or blocks, as blocks."""
    return [Block(type="text", text=content)] if isinstance(content, str) else content


class Voice(Enum):
    """The speaker of an entry with role "user": a person, a slash command, the CLI, or another."""

    #: A person's words, which begin a turn.
    PERSON = auto()
    #: A slash command, which begins a turn only if the model answers.
    COMMAND = auto()
    #: A message of the CLI to the agent, which begins a turn without a person's mission.
    NOTICE = auto()
    #: The person stopped the turn.
    INTERRUPT = auto()
    #: Results of tools.
    TOOLS = auto()
    #: Summaries, reminders, echoes of local commands, which belong to no turn.
    NOBODY = auto()


#: The origins of a person's turn; older versions do not note one.
_PERSONS_ORIGINS = frozenset({None, "human", "sdk"})
_MACHINE_SOURCES = frozenset({"system", "loop_wakeup", "schedule_wakeup", "poll_event"})
_NOTICES = ("<task-notification>", "<teammate-message", "<cross-session-message", "<channel", "<tick>", "<mcp-")
_ECHOES = (
    "<local-command-",
    "<bash-input>",
    "<bash-stdout>",
    "<bash-stderr>",
    "<user-memory-input>",
    "<user-prompt-submit-hook>",
    "<session-start-hook>",
    "Caveat: The messages below were generated by the user while running local commands",
    "This session is being continued from a previous conversation that ran out of context",
)
#: Beginnings of blocks that an editor or the CLI adds to a person's own.
_WRAPPED = ("<system-reminder>", "<ide_")
#: Older versions wrote reminders into a person's own text.
_REMINDER = re.compile(r"<system-reminder>.*?</system-reminder>\s*", re.DOTALL)
_INTERRUPTED = "[Request interrupted by user"
_COMMAND_NAME = re.compile(r"<command-name>\s*(.*?)\s*</command-name>", re.DOTALL)
_COMMAND_ARGS = re.compile(r"<command-args>\s*(.*?)\s*</command-args>", re.DOTALL)


def heard(entry: Entry) -> tuple[Voice, str]:
    """Return the speaker and the text of an entry of type "user"."""
    if entry.is_meta or entry.is_compact_summary or entry.is_visible_in_transcript_only:
        return Voice.NOBODY, ""
    if any(block.type == "tool_result" for block in entry.blocks):
        return Voice.TOOLS, ""
    text = words(entry.blocks)
    if not is_persons(entry.origin) or entry.turn_origin not in _PERSONS_ORIGINS:
        return Voice.NOTICE, text
    if entry.prompt_source is not None:
        # With a named source, the text is used as it is.
        return (Voice.NOTICE if entry.prompt_source in _MACHINE_SOURCES else Voice.PERSON), text
    return _guessed(text)


def is_persons(origin: Any) -> bool:
    """Return whether an `origin` (missing in older versions) is a person."""
    kind = origin.get("kind") if isinstance(origin, dict) else origin
    return kind is None or kind == "human"


def words(content: str | list[Block]) -> str:
    """Return the text of a message without blocks that the CLI added; `[image]` stands for a picture."""
    blocks = [block for block in as_blocks(content) if block.type in {"text", "image"}]
    if len(blocks) > 1:
        blocks = [block for block in blocks if not (block.text or "").startswith(_WRAPPED)]
    said = ["[image]" if block.type == "image" else block.text or "" for block in blocks]
    return "\n\n".join(text for text in said if text)


def _guessed(text: str) -> tuple[Voice, str]:
    text = _REMINDER.sub("", text)
    if text.startswith(_INTERRUPTED):
        return Voice.INTERRUPT, text
    if text.startswith(("<command-name>", "<command-message>")):
        parts = [found[1] for found in (_COMMAND_NAME.search(text), _COMMAND_ARGS.search(text)) if found]
        return Voice.COMMAND, " ".join(part for part in parts if part)
    if text.startswith(_NOTICES):
        return Voice.NOTICE, text
    return (Voice.NOBODY, "") if not text.strip() or text.startswith(_ECHOES) else (Voice.PERSON, text)


#: Damaged places listed one by one; the rest are counted.
MAX_NAMED = 50


@dataclass(slots=True)
class Tally:
    """Counts of the content that an import skipped, and of the files that it read."""

    #: Paths that cannot be imported, and the reasons.
    refusals: list[tuple[Path, str]] = field(default_factory=list)
    #: Files read.
    files: int = 0
    #: Unfinished turns, left for the next import.
    open: int = 0
    #: Sessions of this sprite's agent, which the log already has.
    own: set[str] = field(default_factory=set)
    damaged: int = 0
    named: list[tuple[Path, int, str]] = field(default_factory=list)

    def damage(self, path: Path, place: int, problem: str) -> None:
        """Count a line of a log that was skipped because of a problem; `place` is its line number."""
        self.damaged += 1
        if len(self.named) < MAX_NAMED:
            self.named.append((path, place, problem))

    def refuse(self, path: Path, reason: str | OSError) -> None:
        """Record a file that cannot be read to its end."""
        if isinstance(reason, OSError):
            reason = f"cannot be read: {reason.strerror or reason}"
        self.refusals.append((path, reason))


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Facts that an import needs beside the logs. `now` is in Unix seconds."""

    now: float
    #: Maps a folder in a log to its project.
    project_of: Callable[[Any], str | None]
    on_bytes: Callable[[int], object] = lambda _bytes: None
    #: Claude Code's ids for this sprite's conversations.
    own_sessions: frozenset[str] = frozenset()
    #: Seconds since the log grew, if it is watched.
    silence: float | None = None
