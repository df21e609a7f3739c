"""The proxy's own errors, in the shape of the Messages API's errors (docs: "Errors"). Knows no sockets.

Clients decide by the status whether to retry: the SDKs and the CLI do after 408, 409, 429 and 5xx, unless
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
    """The proxy refuses a call: an HTTP status and a message written for users.

    `kind` is the API's error type; by default it follows from the status.
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
