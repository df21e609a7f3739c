"""Looks at the errors in a stream of server-sent events while all else passes at once.

Pure: chunks in, chunks out. Only an error event is kept until it is whole; if its words would show the bridge's key,
other words take their place. Of any other line nothing is kept but what may still become an error event's beginning.
"""

from __future__ import annotations

import re

from bridge.llm.key_traces import KeyTraces

_BEGINS = re.compile(rb'(?:\A|(?<=[\r\n]))(?:event:[ \t]*error|data:[ \t]*\{\s*"(?:type"\s*:\s*"error|error)")')
_ENDS = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_BEGINNINGS = (b"event:error", b'data:{"type":"error"', b'data:{"error"')
_NEWLINES = re.compile(rb"[\r\n]")
_MAX_BYTES = 1 << 14
#: White space in an event's beginning included.
_LONGEST_LINE = 128


class ErrorEvents:
    """`feed` each chunk and pass on what it gives, then what `finish` gives. `instead` takes an error's place."""

    def __init__(self, traces: KeyTraces, instead: bytes) -> None:
        self._traces = traces
        self._instead = instead
        self._kept = b""
        self._is_at_line_start = True
        self._is_in_error = False

    def feed(self, chunk: bytes) -> bytes:
        """What may pass now."""
        data, self._kept = self._kept + chunk, b""
        passed: list[bytes] = []
        while data:
            if self._is_in_error:
                end = _ENDS.search(data)
                if end is None and len(data) <= _MAX_BYTES:
                    self._kept = data
                    break
                size = end.end() if end is not None else len(data)
                passed.append(self._judged(data[:size]))
                data = data[size:]
                self._is_in_error = end is None
                self._is_at_line_start = True
                continue
            begins = _BEGINS.search(data) if b"error" in data else None
            if begins is not None and (begins.start() > 0 or self._is_at_line_start):
                passed.append(data[: begins.start()])
                data = data[begins.start() :]
                self._is_in_error = True
                continue
            size = len(data) - self._undecided(data)
            passed.append(data[:size])
            self._kept = data[size:]
            self._note_end(data[:size])
            break
        return b"".join(passed)

    def finish(self) -> bytes:
        """What was kept when the stream ended."""
        kept, self._kept = self._kept, b""
        return self._judged(kept) if self._is_in_error and kept else kept

    def _judged(self, event: bytes) -> bytes:
        return self._instead if len(event) > _MAX_BYTES or self._traces.in_any(event) else event

    def _undecided(self, data: bytes) -> int:
        """How many bytes at the end are a line's beginning of which an error event's could still come."""
        newline = max(data.rfind(b"\n"), data.rfind(b"\r"))
        if newline < 0 and not self._is_at_line_start:
            return 0
        line = data[newline + 1 :]
        shown = re.sub(rb"[ \t]", b"", line[:_LONGEST_LINE])
        is_beginning = len(line) <= _LONGEST_LINE and shown and any(one.startswith(shown) for one in _BEGINNINGS)
        return len(line) if is_beginning else 0

    def _note_end(self, passed: bytes) -> None:
        if passed:
            self._is_at_line_start = _NEWLINES.match(passed[-1:]) is not None
