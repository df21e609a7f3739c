"""Rewrite the upstream's errors for clients: type and message, without the bridge's own keys. Pure."""

from __future__ import annotations

import re
from itertools import pairwise

import msgspec

from bridge.llm.errors import RefusedError
from sprite.common import own_secrets

_MAX_WORDS = 2000
_KIND = re.compile(r"[a-z_]{1,60}")
_EVENT_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
_MAX_EVENT = 1 << 20


def told(error: object, status: int) -> RefusedError:
    """Return the error to send to a client for an upstream error (decoded JSON, or None where the body was not JSON)."""
    error = error.get("error", error) if isinstance(error, dict) else error
    kind, words = (error.get("type"), error.get("message")) if isinstance(error, dict) else (None, error)
    if not isinstance(words, str) or not words.strip():
        words = f"The model's API answered with an error ({status}) and no words."
    if not isinstance(kind, str) or _KIND.fullmatch(kind) is None:
        kind = None
    return RefusedError(status, own_secrets.without(words)[:_MAX_WORDS], kind=kind)


def decoded(body: bytes) -> object:
    """Return a body's JSON, or None where it has none."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None


class ErrorEvents:
    """Rewrite the errors in a stream of server-sent events: `feed` each chunk and forward what it returns.

    Events are forwarded whole, because clients can do nothing with a part of one. An event over 1 MiB (a fetched PDF, for
    example) is forwarded as it arrives: no error is that large.
    """

    def __init__(self) -> None:
        self._kept = b""
        self._is_inside_large = False

    def feed(self, chunk: bytes) -> bytes:
        """Return the events that are complete now."""
        data = self._kept + chunk
        ends = [0, *(end.end() for end in _EVENT_END.finditer(data, max(0, len(self._kept) - 3)))]
        events = [data[begin:end] for begin, end in pairwise(ends)]
        self._kept = data[ends[-1] :]
        ready = []
        if events and self._is_inside_large:
            ready.append(events.pop(0))
            self._is_inside_large = False
        ready.extend(map(_rewritten, events))
        if self._is_inside_large or len(self._kept) > _MAX_EVENT:
            # The last bytes may be the beginning of the event's end.
            ready.append(self._kept[:-3])
            self._kept = self._kept[-3:]
            self._is_inside_large = True
        return b"".join(ready)

    def finish(self) -> bytes:
        """Return the rest when the stream has ended."""
        kept, self._kept = self._kept, b""
        return kept if self._is_inside_large else _rewritten(kept)


def _rewritten(event: bytes) -> bytes:
    if b"error" not in event:
        return event
    lines = event.splitlines()
    data = decoded(b"\n".join(line[5:].lstrip() for line in lines if line.startswith(b"data:")))
    is_named = any(line.startswith(b"event:") and line[6:].strip() == b"error" for line in lines)
    if not is_named and not (isinstance(data, dict) and (data.get("type") == "error" or "error" in data)):
        return event
    return told(data, 500).event()
