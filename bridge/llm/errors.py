"""The proxy's own refusals, in the shape of the Messages API's errors (docs: "Errors"). Knows no sockets.

Whether clients try again follows from the status: the SDKs and the CLI do after 408, 409, 429 and 5xx, unless
`x-should-retry` says otherwise.
"""

from __future__ import annotations

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
    """A call that gets an answer of the proxy's own: an HTTP status, and words a person understands.

    `kind` is the API's type of the error; the status implies one.
    """

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
        """The answer; `request_id` is the upstream's name for the exchange."""
        request_id = request_id or f"req_{secrets.token_hex(12)}"
        headers = {"request-id": request_id, "cache-control": "no-store"}
        if self._retry_after is not None:
            headers["retry-after"] = str(self._retry_after)
        if self._retry is not None:
            headers["x-should-retry"] = "true" if self._retry else "false"
        body = msgspec.json.encode({**self._body(), "request_id": request_id})
        return web.Response(status=self.status, body=body, content_type="application/json", headers=headers)

    def event(self) -> bytes:
        """The same as a server-sent event, for an answer that has begun."""
        return b"event: error\ndata: %b\n\n" % msgspec.json.encode(self._body())

    def _body(self) -> dict[str, object]:
        return {"type": "error", "error": {"type": self._kind, "message": self.words}}
