"""Middleware for all requests: request id, Host check, limits, headers, log line, metrics and answers to errors."""

import asyncio
import logging
import secrets
import time
from http import HTTPStatus
from typing import Final

from aiohttp import web
from aiohttp.typedefs import Handler

from bridge.auth import login
from bridge.auth.login import Authenticator
from bridge.cluster.forward import HOP
from bridge.db.database import DatabaseAwayError
from bridge.http import messages
from bridge.proxy.body import MAX_BODY_BYTES
from bridge.routes.owner import ROUTES
from bridge.telemetry.logs import PERSON, REQUEST_ID, SPRITE
from bridge.telemetry.metrics import Metrics
from sprite.common.limits import TokenBucket

log = logging.getLogger(__name__)

#: Limit for the arrival of a body: 2 Mbit/s for the largest one.
_BODY_SECONDS = 120.0
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"})
#: Polled every few seconds by machines: counted, but not logged.
_QUIET = frozenset({"/healthz", "/readyz", "/metrics", "/-/{version}/{name}", "/{name}"})
#: API endpoints below /v1/. All other paths there belong to the model proxy, which has its own limits.
_DOORS = frozenset({"/v1/observations", "/v1/memory/boot", "/v1/chat/completions"})
#: Probes use an IP address, not a name.
_ANY_HOST = frozenset({"/healthz", "/readyz"})
#: Rate limit for log lines of unauthenticated requests, which have no other limit. All are counted.
_STRANGERS_LINES_PER_SECOND, _STRANGERS_LINES_AT_ONCE = 1.0, 100.0
_BEGUN_AS: Final = web.RequestKey("begun_as", int)
_HEADERS = {
    "Server": "Sprite",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class SecurityMiddleware:
    """Add security headers and checks to the public application. `is_secure`: people connect over https.

    `has_peers`: other bridges forward requests, which `OwnerRouter` verifies.
    """

    def __init__(
        self,
        authenticator: Authenticator,
        metrics: Metrics,
        *,
        is_secure: bool,
        has_peers: bool = False,
        body_seconds: float = _BODY_SECONDS,
    ) -> None:
        self._authenticator = authenticator
        self._metrics = metrics
        self._has_peers = has_peers
        self._body_seconds = body_seconds
        self._strangers_lines = TokenBucket(_STRANGERS_LINES_PER_SECOND, _STRANGERS_LINES_AT_ONCE)
        self._headers = _HEADERS | ({"Strict-Transport-Security": "max-age=31536000"} if is_secure else {})

    async def add_headers(self, request: web.Request, response: web.StreamResponse) -> None:
        """Add headers, as an `on_response_prepare` signal. The model proxy's answers stay unchanged."""
        request[_BEGUN_AS] = response.status
        if REQUEST_ID in request and not _is_models(request):
            response.headers["X-Request-Id"] = request[REQUEST_ID]
            for name, value in self._headers.items():
                if name not in response.headers or name == "Server":
                    response.headers[name] = value

    @web.middleware
    async def around(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Check, answer and log a request, as a middleware."""
        request[REQUEST_ID] = secrets.token_hex(8)
        began = time.monotonic()
        status = 499
        slow = asyncio.get_running_loop().call_later(self._body_seconds, _give_up, request)
        try:
            response = await self._answer(request, handler)
            status = response.status
            return response
        finally:
            # Also after a disconnect, which cancels the handler or breaks the connection: status 499.
            slow.cancel()
            if request.get(_BEGUN_AS) == HTTPStatus.SWITCHING_PROTOCOLS:
                # However the WebSocket ended.
                status = HTTPStatus.SWITCHING_PROTOCOLS
            self._note(request, status, time.monotonic() - began)

    async def _answer(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        if not self._may_name(request):
            return login.foreign_host(request)
        if (request.content_length or 0) > MAX_BODY_BYTES:
            return _refusal(request, web.HTTPRequestEntityTooLarge(MAX_BODY_BYTES))
        try:
            return await handler(request)
        except (messages.AnsweredError, web.HTTPException) as refused:
            return _refusal(request, refused)
        except ConnectionError:
            # The client disconnected in mid-answer; aiohttp cleans up.
            raise
        except DatabaseAwayError:
            # The database itself logs that it is away, once.
            if _BEGUN_AS in request:
                raise ConnectionResetError("an answer that has begun cannot be replaced") from None
            words = "Nothing is lost. Try again in a moment."
            return messages.page(request, 503, "The database is unreachable", words, code="database_away")
        except Exception as error:
            # A bug must neither end the connection without an answer nor reveal its message.
            log.exception("a request failed", extra={"request_id": request[REQUEST_ID], "route": _route(request)})
            if _BEGUN_AS in request:
                raise ConnectionResetError("an answer that has begun cannot be replaced") from error
            words = f"Whoever runs this bridge finds it in the bridge's log as {request[REQUEST_ID]}."
            return messages.page(request, 500, "Something went wrong here", words, code="internal")

    def _may_name(self, request: web.Request) -> bool:
        """Return whether the request's Host is allowed: a name of this bridge, or any host in a forwarded request."""
        route = _route(request)
        is_passed_on = self._has_peers and HOP in request.headers and route in ROUTES
        return is_passed_on or route in _ANY_HOST or self._authenticator.is_known_host(request)

    def _note(self, request: web.Request, status: int, seconds: float) -> None:
        route = _route(request)
        method = request.method if request.method in _METHODS else "other"
        self._metrics.answered(method, route, status, seconds)
        if route in _QUIET:
            return
        known = {name: request[key] for name, key in (("person", PERSON), ("sprite", SPRITE)) if key in request}
        if not known:
            if self._strangers_lines.wait(1) > 0:
                return
            self._strangers_lines.take(1)
        asked = {"request_id": request[REQUEST_ID], "method": method, "route": route, "status": status}
        log.info("answered", extra={**asked, "duration_ms": round(seconds * 1000, 1), **known})


def _route(request: web.Request) -> str:
    """Return the route's pattern, such as /files/{path}, so that logs leave out the requested path."""
    resource = request.match_info.route.resource
    return "unknown" if resource is None else resource.canonical


def _is_models(request: web.Request) -> bool:
    return request.path.startswith("/v1/") and request.path not in _DOORS


def _give_up(request: web.Request) -> None:
    """End a body that does not arrive; the model proxy has its own limits."""
    if not (request.content.is_eof() or _is_models(request)):
        request.content.set_exception(web.HTTPRequestTimeout(headers={"Connection": "close"}))


def _refusal(request: web.Request, refused: messages.AnsweredError | web.HTTPException) -> web.Response:
    if isinstance(refused, messages.AnsweredError):
        return refused.response
    if isinstance(refused, web.HTTPNotFound):
        return messages.page(request, 404, "There is nothing here", code="not_found")
    if isinstance(refused, web.HTTPRequestEntityTooLarge):
        return messages.too_large(request, MAX_BODY_BYTES)
    kept = {name: refused.headers[name] for name in ("Allow", "Connection") if name in refused.headers}
    return messages.page(request, refused.status, refused.reason, code="refused", headers=kept)
