"""Claude Code's session logs, line by line: bytes in, entries out (pure, no I/O).

A log is JSON lines, written by any version of the CLI. Only what a turn is made of is decoded; what a line must have is
checked here, and everything after may trust it.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec

#: A message with pictures in it can be large; a line above this is not read at all.
MAX_LINE_BYTES = 64 * 1024 * 1024
#: A session's id becomes ours, is shown in terminals and typed into `session:` filters.
SessionId = Annotated[str, msgspec.Meta(pattern=r"\A[A-Za-z0-9][A-Za-z0-9_.-]{0,127}\Z")]
EntryId = Annotated[str, msgspec.Meta(pattern=r"\A[!-~]{1,128}\Z")]


class LogLineError(ValueError):
    """A line that cannot be used; the message says why."""


class Block(msgspec.Struct):
    """A content block of the Messages API, as far as a turn needs it."""

    type: str
    text: str | None = None
    id: str | None = None
    name: str | None = None
    input: Any = None
    tool_use_id: str | None = None
    content: Any = None
    is_error: bool | None = None


class Body(msgspec.Struct):
    """What was said. `stop_reason` is missing in logs of older versions."""

    content: str | list[Block] = ""
    model: str | None = None
    stop_reason: str | None = None


class Launch(msgspec.Struct, rename="camel"):
    """The part of a tool's own result that names the subagent it started."""

    agent_id: Any = None
    is_async: Any = None


class Attachment(msgspec.Struct, rename="camel"):
    """Something the CLI put beside the conversation: a queued message, the end by `max_turns`, and much else."""

    type: str
    prompt: str | list[Block] = ""
    command_mode: str | None = None
    origin: Any = None


class Entry(msgspec.Struct, rename="camel"):
    """One entry of a conversation; `type` is "user", "assistant" or "attachment"."""

    type: str
    uuid: EntryId
    timestamp: datetime
    session_id: SessionId
    message: Body | None = None
    attachment: Attachment | None = None
    is_sidechain: bool | None = None
    is_meta: bool | None = None
    is_compact_summary: bool | None = None
    is_visible_in_transcript_only: bool | None = None
    is_api_error_message: bool | None = None
    is_aborted_mid_stream: bool | None = None
    agent_id: str | None = None
    prompt_source: str | None = None
    turn_origin: str | None = None
    origin: Any = None
    tool_use_result: Launch | list[Any] | str | float | bool | None = None

    @property
    def at(self) -> float:
        """When it was written, in Unix seconds."""
        moment = self.timestamp if self.timestamp.tzinfo else self.timestamp.replace(tzinfo=UTC)
        return moment.timestamp()

    @property
    def blocks(self) -> list[Block]:
        """What was said, as blocks."""
        return as_blocks(self.message.content) if self.message else []


class Head(msgspec.Struct, rename="camel"):
    """What tells a line of a session log, of whatever kind, from any other JSON."""

    type: str
    timestamp: Any = None
    session_id: Any = None
    leaf_uuid: Any = None
    message_id: Any = None
    uuid: Any = None

    @property
    def at(self) -> float | None:
        """When it was written, in Unix seconds, where it says so."""
        try:
            return datetime.fromisoformat(self.timestamp).timestamp()
        except (TypeError, ValueError):
            return None


#: Everything else (requests, costs, titles, snapshots of files) is the CLI's bookkeeping.
_CONVERSATION = frozenset({"user", "assistant", "attachment"})
#: The attachments that belong to a turn; the others tell the model about its surroundings.
_ATTACHMENTS = frozenset({"queued_command", "max_turns_reached"})
_head = msgspec.json.Decoder(Head)
_entry = msgspec.json.Decoder(Entry)


def read_line(line: bytes) -> Entry | None:
    """The entry on a line, or None where it holds bookkeeping. LogLineError if the line cannot be used."""
    if len(line) > MAX_LINE_BYTES:
        raise LogLineError(f"longer than {MAX_LINE_BYTES // 2**20} MiB")
    try:
        return _checked(_read(line))
    except msgspec.ValidationError as error:
        raise LogLineError(f"wrong shape: {error}") from error
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise LogLineError(f"not JSON: {str(error).partition(chr(10))[0]}") from error


def read_head(line: bytes) -> Head | None:
    """What is known of a line that looks as if it came from a session log; None for any other."""
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
        # The CLI writes half an emoji as it got it, and some write NaN: Python's reader takes both.
        value = json.loads(line)
        head = msgspec.convert(value, Head)
        return msgspec.convert(value, Entry) if head.type in _CONVERSATION else None


def _checked(entry: Entry | None) -> Entry | None:
    if entry is None:
        return None
    if entry.type == "attachment":
        return entry if entry.attachment is not None and entry.attachment.type in _ATTACHMENTS else None
    if entry.message is None:
        raise msgspec.ValidationError("Object missing required field `message`")
    return entry


def as_blocks(content: str | list[Block]) -> list[Block]:
    """A message's content as blocks, in whichever of its two forms it was written."""
    return [Block(type="text", text=content)] if isinstance(content, str) else content
