"""The upstream's errors as clients are told of them: type and message, without the bridge's own keys. Pure."""

from __future__ import annotations

import re

import msgspec

from bridge.llm.errors import RefusedError
from sprite.common import own_secrets

_MAX_WORDS = 2000
_KIND = re.compile(r"[a-z_]{1,60}")
_EVENT_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")
#: No event that clients know is as large.
_MAX_EVENT = 1 << 20


def told(error: object, status: int) -> RefusedError:
    """What a client is told of an error of the upstream's, given as decoded JSON or None where it was none."""
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
    """Rewrites the errors in a stream of server-sent events: `feed` each chunk and pass on what it gives.

    Events pass whole: clients can do nothing with a part of one.
    """

    def __init__(self) -> None:
        self._kept = b""

    def feed(self, chunk: bytes) -> bytes:
        """Return the events that are whole now."""
        data = self._kept + chunk
        ends = [end.end() for end in _EVENT_END.finditer(data, max(0, len(self._kept) - 3))]
        if not ends and len(data) > _MAX_EVENT:
            raise RefusedError(502, "The model's API sent an event that is too large.")
        at = ends[-1] if ends else 0
        self._kept = data[at:]
        whole = data[:at]
        return whole if b"error" not in whole else b"".join(_rewritten(event) for event in _events(whole))

    def finish(self) -> bytes:
        """Return what was kept when the stream ended."""
        kept, self._kept = self._kept, b""
        return _rewritten(kept)


def _events(whole: bytes) -> list[bytes]:
    ends = [end.end() for end in _EVENT_END.finditer(whole)]
    return [whole[begin:end] for begin, end in zip([0, *ends], ends, strict=False)]


def _rewritten(event: bytes) -> bytes:
    if b"error" not in event:
        return event
    lines = event.splitlines()
    data = decoded(b"\n".join(line[5:].lstrip() for line in lines if line.startswith(b"data:")))
    is_named = any(line.startswith(b"event:") and line[6:].strip() == b"error" for line in lines)
    if not is_named and not (isinstance(data, dict) and (data.get("type") == "error" or "error" in data)):
        return event
    return told(data, 500).event()
