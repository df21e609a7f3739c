"""Reads a call's usage out of an answer while its bytes pass by: server-sent events, or one JSON object.

Pure, and deaf to how the bytes are cut into chunks. What it cannot read it leaves out: the answer itself is passed on
whatever it is.

A stream says its usage at the start (`message_start`: the prompt, cached or not) and at the end (`message_delta`: what
was written, counted from the beginning). Of one that ends in between, the output is estimated from the deltas that
went by: four bytes a token.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Protocol

import msgspec

from bridge.llm.json_scanner import MalformedError, TopLevelScanner
from sprite.prices import ApiUsage, Usage

BYTES_PER_TOKEN = 4
#: A line that says usage has a few hundred bytes. A longer one is a tool's result, and is not kept.
_MAX_LINE_BYTES = 1 << 16
#: What a delta takes besides its text: `data: {"type":"content_block_delta","index":0,"delta":{...}}`.
_DELTA_FRAME_BYTES = 85
_INFLATE_BYTES = 1 << 16
#: zlib's way to say: a header of gzip or of zlib, whichever comes.
_ANY_HEADER = 47


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


class _Event(msgspec.Struct):
    type: str = ""
    message: _Message | None = None
    usage: ApiUsage | None = None


_EVENTS = msgspec.json.Decoder(_Event)
_USAGES = msgspec.json.Decoder(ApiUsage)


class SseMeter:
    """Of a stream of server-sent events."""

    def __init__(self) -> None:
        self.at_boundary = True
        self._usage: Usage | None = None
        self._model: str | None = None
        self._is_final = False
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
        return Reading(usage, self._model, is_final=self._is_final and not streamed)

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
            self._streamed_bytes += max(len(line) - _DELTA_FRAME_BYTES, 0)

    def _event(self, data: bytes) -> None:
        try:
            event = _EVENTS.decode(data)
        except msgspec.MsgspecError:
            return
        if event.type == "message_start" and event.message is not None and event.message.usage is not None:
            self._model = event.message.model
            self._merge(event.message.usage)
        elif event.type == "message_delta" and event.usage is not None:
            self._merge(event.usage)
            if event.usage.output_tokens is not None:
                self._is_final = True
                self._streamed_bytes = 0

    def _merge(self, said: ApiUsage) -> None:
        self._usage = said.upon(self._usage or Usage())


class JsonMeter:
    """Of one JSON object."""

    at_boundary = False

    def __init__(self) -> None:
        self._scanner: TopLevelScanner | None = TopLevelScanner(("model", "usage"))

    def feed(self, chunk: bytes) -> None:
        """See Meter."""
        if self._scanner is None:
            return
        try:
            self._scanner.feed(chunk)
        except MalformedError:
            self._scanner = None

    def read(self) -> Reading:
        """See Meter."""
        said = self._scanner.values if self._scanner is not None else {}
        if "usage" not in said:
            return Reading()
        try:
            usage = _USAGES.decode(said["usage"]).upon(Usage())
            model = msgspec.json.decode(said.get("model", b"null"), type=str | None)
        except msgspec.MsgspecError:
            return Reading()
        return Reading(usage, model, is_final=True)


class Inflating:
    """Feeds a meter with what a compressed body holds; the body itself is passed on as it is."""

    at_boundary = False

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self._inflate = zlib.decompressobj(_ANY_HEADER)
        self._is_broken = False

    def feed(self, chunk: bytes) -> None:
        """See Meter."""
        while chunk and not self._is_broken and not self._inflate.eof:
            try:
                self._meter.feed(self._inflate.decompress(chunk, _INFLATE_BYTES))
            except zlib.error:
                self._is_broken = True
            chunk = self._inflate.unconsumed_tail

    def read(self) -> Reading:
        """See Meter."""
        return self._meter.read()


def meter_of(content_type: str, encoding: str) -> Meter:
    """The meter for an answer with these headers. A body in an encoding that is not known here gives no reading."""
    meter: Meter = SseMeter() if content_type.startswith("text/event-stream") else JsonMeter()
    return meter if encoding in {"", "identity"} else Inflating(meter)
