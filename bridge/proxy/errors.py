"""The proxy's own errors, in the shape of the Messages API's errors (docs: "Errors"). Knows no sockets.

Clients decide by the status whether to retry: the SDKs and the CLI do after 408, 409, 429 and 5xx, unless
`x-should-retry` says otherwise.
"""

import re
import secrets

import msgspec
from aiohttp import web

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    408: "timeout_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class RefusedError(Exception):
    """The proxy refuses a call, with words for users. By default, `kind` (the API's error type) follows from status."""

    def __init__(
        self,
        status: int,
        words: str,
        *,
        retry_after: int | None = None,
        retry: bool | None = None,
        kind: str | None = None,
    ) -> None:
        super().__init__(words)
        self._kind = kind or _TYPES.get(status, "api_error")
        self.status = status
        self.words = words
        self._retry_after = retry_after
        self._retry = retry

    def response(self, request_id: str | None = None) -> web.Response:
        """Return the HTTP response; `request_id` is the upstream's id of the exchange."""
        request_id = request_id or f"req_{secrets.token_hex(12)}"
        headers = {"request-id": request_id, "cache-control": "no-store"}
        if self._retry_after is not None:
            headers["retry-after"] = str(self._retry_after)
        if self._retry is not None:
            headers["x-should-retry"] = "true" if self._retry else "false"
        body = msgspec.json.encode({**self._body(), "request_id": request_id})
        return web.Response(status=self.status, body=body, content_type="application/json", headers=headers)

    def event(self) -> bytes:
        """Return the error as a server-sent event, for a stream that has begun."""
        return b"event: error\ndata: %b\n\n" % msgspec.json.encode(self._body())

    def _body(self) -> dict[str, object]:
        return {"type": "error", "error": {"type": self._kind, "message": self.words}}


_EVENT = re.compile(rb"(?s).*?(?:\n\n|\r\n\r\n|\Z)")
_ENDS = (b"\n\n", b"\r\n\r\n")
_MAX_EVENT = 1 << 20
_TEXTS = {
    "invalid_request_error": "The request was refused as invalid.",
    "authentication_error": "The bridge's key was refused.",
    "billing_error": "The request was refused because of billing.",
    "permission_error": "The request is not permitted.",
    "not_found_error": "The model or resource does not exist.",
    "conflict_error": "The request conflicts with another one.",
    "request_too_large": "The request is too large.",
    "rate_limit_error": "The rate limit is reached.",
    "api_error": "The model's API failed.",
    "timeout_error": "The request took too long.",
    "overloaded_error": "The model's API is overloaded.",
}
#: Texts that the CLI acts on, for example by compacting its conversation. Only digits vary.
_ACTED_ON = re.compile(
    r"prompt is too long(?:: \d+ tokens > \d+ maximum)?"
    r"|input length and `max_tokens` exceed context limit: \d+ \+ \d+ > \d+"
    r"|max_tokens: \d+ > \d+, which is the maximum allowed number of output tokens"
    r"|image exceeds \d+ MB maximum"
    r"|image dimensions exceed max allowed size for many-image requests"
    r"|Could not process (?:image|PDF)"
    r"|maximum of \d+ PDF pages"
    r"|The PDF specified (?:was not valid|is password protected)"
    r"|`tool_use` ids were found without `tool_result` blocks immediately after"
    r"|unexpected `tool_use_id` found in `tool_result`"
    r"|`tool_use` ids must be unique"
    r"|credit balance is too low",
    re.IGNORECASE,
)


def told(error: object, status: int) -> RefusedError:
    """Return a client's error, made from the upstream's error as decoded JSON, or None if the body was not JSON."""
    error = error.get("error") if isinstance(error, dict) else None
    kind, words = (error.get("type"), error.get("message")) if isinstance(error, dict) else (None, None)
    acted_on = _ACTED_ON.search(words) if isinstance(words, str) else None
    text = acted_on[0] if acted_on else _TEXTS.get(str(kind), f"The model's API failed ({status}).")
    return RefusedError(status, text, kind=kind if kind in _TEXTS else None)


def decoded(body: bytes) -> object:
    """Return a response body decoded from JSON, or None if it is not JSON."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return None


class ErrorEvents:
    """Replace the errors in a stream of server-sent events: `feed` each chunk and forward what it returns.

    Events are forwarded whole; those over 1 MiB, for example a fetched PDF, in parts: no error is that large.
    """

    def __init__(self) -> None:
        self._kept = bytearray()

    def feed(self, chunk: bytes) -> bytes:
        """Add a chunk of the stream; return the events that are complete now."""
        searched = max(0, len(self._kept) - 3)
        self._kept += chunk
        ends = [at + len(mark) for mark in _ENDS if (at := self._kept.rfind(mark, searched)) >= 0]
        return self._taken(max(ends, default=len(self._kept) if len(self._kept) > _MAX_EVENT else 0))

    def finish(self) -> bytes:
        """Return the unsent rest of the stream when it has ended."""
        return self._taken(len(self._kept))

    def _taken(self, end: int) -> bytes:
        ready = bytes(self._kept[:end])
        del self._kept[:end]
        return b"".join(map(_rewritten, _EVENT.findall(ready))) if b"error" in ready else ready


def _rewritten(event: bytes) -> bytes:
    name, _, data = event.partition(b"data:")
    error = decoded(data)
    is_error = (name.startswith(b"event:") and b"error" in name) or (isinstance(error, dict) and "error" in error)
    return told(error, 500).event() if is_error else event
