"""Reads a call's usage out of an answer while its bytes pass by: server-sent events, or one JSON object.

Pure, and deaf to how the bytes are cut into chunks. What it cannot read it leaves out: the answer itself is passed on
whatever it is.

A stream says its usage at the start (`message_start`: the prompt, cached or not) and at the end (`message_delta`: what
was written, counted from the beginning, with the reason why it ends). Of one that ends in between, what was written is
estimated from the deltas that went by, four bytes a token, and that is no bound: what was thought may not have gone by.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import msgspec

from sprite.prices import ApiUsage, Usage

BYTES_PER_TOKEN = 4
#: A line that says usage has a few hundred bytes. A longer one is a tool's result, and is not kept.
_MAX_LINE_BYTES = 1 << 16
#: The largest message that is kept to be decoded, as large as the curator takes; 16 MiB would take 50 ms.
_MAX_MESSAGE_BYTES = 8 << 20
#: What a delta takes besides its text: `data: {"type":"content_block_delta","index":0,"delta":{...}}`.
_DELTA_FRAME_BYTES = 85


@dataclass(slots=True)
class Reading:
    """What an answer said of itself. `usage` is None where nothing could be read.

    `is_final`: the numbers are the API's own to the end; else the output is an estimate.
    """

    usage: Usage | None = None
    model: str | None = None
    is_final: bool = False


class Meter(Protocol):
    """Is fed each chunk of an answer's body, and can say at any moment what is known."""

    #: Whether what has passed by ends where an event of ours could follow.
    at_boundary: bool

    def feed(self, chunk: bytes) -> None:
        """Looks at one more chunk."""
        ...

    def read(self) -> Reading:
        """What is known so far."""
        ...


class _Message(msgspec.Struct):
    model: str | None = None
    usage: ApiUsage | None = None


class _Delta(msgspec.Struct):
    stop_reason: str | None = None


class _Event(msgspec.Struct):
    type: str = ""
    message: _Message | None = None
    usage: ApiUsage | None = None
    delta: _Delta | None = None


_EVENTS = msgspec.json.Decoder(_Event)
_MESSAGES = msgspec.json.Decoder(_Message)


class SseMeter:
    """Of a stream of server-sent events."""

    def __init__(self) -> None:
        self.at_boundary = True
        self._usage: Usage | None = None
        self._model: str | None = None
        self._is_counted = False  # whether what was written is said
        self._is_over = False
        self._has_prompt = False
        self._streamed_bytes = 0
        self._parts: list[bytes] = []  # of the line that has not ended
        self._part_bytes = 0

    def feed(self, chunk: bytes) -> None:
        """See Meter."""
        *ended, rest = chunk.split(b"\n")
        if ended:
            if self._part_bytes:
                self._line(self._joined(ended[0]))
                del ended[0]
            for line in ended:
                self._line(line)
        if rest:
            self._part_bytes += len(rest)
            self.at_boundary = False
            if self._part_bytes <= _MAX_LINE_BYTES:
                self._parts.append(rest)
            else:
                self._parts.clear()

    def read(self) -> Reading:
        """See Meter."""
        if self._usage is None:
            return Reading(model=self._model)
        streamed = self._streamed_bytes // BYTES_PER_TOKEN
        usage = msgspec.structs.replace(self._usage, output=self._usage.output + streamed)
        return Reading(usage, self._model, is_final=self._is_counted and self._is_over and not self._streamed_bytes)

    def _joined(self, end: bytes) -> bytes:
        """The whole line; nothing of one that was too long."""
        line = b"".join((*self._parts, end)) if self._part_bytes <= _MAX_LINE_BYTES else b"-"
        self._parts.clear()
        self._part_bytes = 0
        return line

    def _line(self, line: bytes) -> None:
        # An empty line ends an event.
        self.at_boundary = not line or line == b"\r"
        if not line.startswith(b"data:") or len(line) > _MAX_LINE_BYTES:
            return
        if b'"usage"' in line:  # in a text its quotes would be escaped
            self._event(line[len(b"data:") :])
        elif b"content_block_delta" in line:
            self._streamed_bytes += max(len(line) - _DELTA_FRAME_BYTES, 1)
        elif b"message_stop" in line:
            self._event(line[len(b"data:") :])

    def _event(self, data: bytes) -> None:
        try:
            event = _EVENTS.decode(data)
        except msgspec.MsgspecError:
            return
        if event.type == "message_start" and event.message is not None and event.message.usage is not None:
            self._model = event.message.model
            self._merge(event.message.usage)
            self._has_prompt = event.message.usage.input_tokens is not None
        elif event.type == "message_delta" and event.usage is not None:
            self._merge(event.usage)
            if event.usage.output_tokens is not None:
                self._is_counted = self._has_prompt or event.usage.input_tokens is not None
                self._streamed_bytes = 0
                self._is_over = event.delta is not None and event.delta.stop_reason is not None
        elif event.type == "message_stop":
            self._is_over = True

    def _merge(self, said: ApiUsage) -> None:
        self._usage = said.upon(self._usage or Usage())


class JsonMeter:
    """Of one JSON object, kept until it is read. Of one over 8 MiB nothing is known."""

    at_boundary = False

    def __init__(self) -> None:
        self._body = bytearray()
        self._is_too_long = False

    def feed(self, chunk: bytes) -> None:
        """See Meter."""
        if len(self._body) + len(chunk) > _MAX_MESSAGE_BYTES:
            self._is_too_long = True
            self._body.clear()
        if not self._is_too_long:
            self._body += chunk

    def read(self) -> Reading:
        """See Meter."""
        try:
            message = _MESSAGES.decode(self._body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return Reading()
        if message.usage is None:
            return Reading()
        is_whole = message.usage.input_tokens is not None and message.usage.output_tokens is not None
        return Reading(message.usage.upon(Usage()), message.model, is_final=is_whole)


def meter_of(content_type: str) -> Meter:
    """The meter for an answer of this type (`text/event-stream`, without parameters)."""
    return SseMeter() if content_type == "text/event-stream" else JsonMeter()
