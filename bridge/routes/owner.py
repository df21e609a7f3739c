"""Routing of sprite requests: answered here if this bridge owns the sprite, else forwarded to its owner.

Here the person is only identified, to find their sprite's owner, whose endpoint authorizes the request. The local
endpoint answers requests without valid credentials. A single bridge needs none of this.
"""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from aiohttp import HttpVersion11, hdrs, web
from aiohttp.typedefs import Handler

from bridge.auth.admission import Revocations
from bridge.auth.login import Authenticator, bearer
from bridge.auth.tokens import PersonTokens
from bridge.cluster import forward
from bridge.cluster.ownership import NotOwnedError, OwnedElsewhere, Owner, Ownership
from bridge.http import messages
from bridge.telemetry.logs import PERSON, REQUEST_ID

_By = Literal["anything", "token", "cookie"]

#: Routes that need a sprite, with their credentials: a cookie, any token, or `anything` (a cookie or a full token).
DOORS: Final[dict[str, _By]] = {
    "/ws": "anything",
    "/ws/why": "anything",
    "/files/{path:.+}": "anything",
    "/push/permission": "cookie",
    "/restore": "anything",
    "/export": "cookie",
    **dict.fromkeys(
        (
            "/connections",
            "/connections/{connection}",
            *(f"/connections/{{connection}}/{what}" for what in ("test", "agree", "switch", "pin", "login")),
        ),
        "anything",
    ),
    "/connections/callback": "cookie",
    "/v1/observations": "token",
    "/v1/memory/boot": "token",
    "/v1/chat/completions": "token",
    "/mcp": "token",
}
#: The same as names of routes. Forwarded requests arrive on these only.
ROUTES: Final = frozenset(path.replace(":.+", "") for path in DOORS)
#: The sprite may change its owner during the first attempt; one retry is enough for that.
_LOOKS = 2
_UNREACHABLE = "Your agent cannot be reached now"


@dataclass(frozen=True, slots=True)
class OwnerRouter:
    """Forward requests to the bridge that owns the sprite: pass `guarded(routes)` to the application."""

    authenticator: Authenticator
    tokens: PersonTokens
    ownership: Ownership
    hops: forward.Hops
    seal: forward.RequestSigner | None
    revocations: Revocations

    def guarded(self, routes: Sequence[web.RouteDef]) -> list[web.RouteDef]:
        """Return the routes, with those in DOORS wrapped to be answered by the sprite's owner."""
        return [self._route(route) if route.path in DOORS else route for route in routes]

    async def for_person(self, request: web.Request, person: str, handler: Handler) -> web.StreamResponse:
        """Answer a request from the control socket, here or by forwarding it to the sprite's owner."""
        request.setdefault(REQUEST_ID, secrets.token_hex(8))
        return await self._led(request, forward.ForwardedIdentity(person, "operator", None), handler)

    def _route(self, route: web.RouteDef) -> web.RouteDef:
        by, handler = DOORS[route.path], route.handler

        async def cross(request: web.Request) -> web.StreamResponse:
            if forward.HOP in request.headers:
                return await self._taken(request, handler)
            passed = await self._recognised(request, by)
            return await (handler(request) if passed is None else self._led(request, passed, handler))

        return web.RouteDef(route.method, route.path, cross, {**route.kwargs, "expect_handler": _expect})

    async def _recognised(self, request: web.Request, by: _By) -> forward.ForwardedIdentity | None:
        """Return the person and credential, or None if the endpoint, which accepts `by`, itself has to refuse."""
        token = bearer(request)
        if token is None:
            caller = None if by == "token" else await self.authenticator.browser(request)
            return None if caller is None else forward.ForwardedIdentity(caller.person, "session", caller.way_in)
        holder = None if by == "cookie" else await self.tokens.holder(token)
        if holder is None or (by == "anything" and holder.scopes is not None):
            return None
        return forward.ForwardedIdentity(holder.person, "token", holder.key.hex(), holder.label, holder.scopes)

    async def _led(
        self, request: web.Request, passed: forward.ForwardedIdentity, handler: Handler
    ) -> web.StreamResponse:
        """Answer a request here, or forward it to the owner of the person's sprite."""
        request[PERSON] = passed.person
        fault: forward.HopError | NotOwnedError
        for look in range(_LOOKS):
            try:
                owner = await self._owner(passed.person, is_sure=look > 0)
                if owner is None:
                    with self.ownership.using(passed.person):
                        return await handler(request)
                hop = forward.ForwardHeader(passed, owner.epoch, request[REQUEST_ID])
                return await self.hops.passed_on(request, owner, hop, self.authenticator.address(request))
            except (forward.LookAgainError, NotOwnedError) as error:
                fault = error
            except forward.HopError as error:
                return messages.page(request, error.status, _UNREACHABLE, str(error), code=error.code)
        if web.WebSocketResponse().can_prepare(request).ok:
            # Pages and terminals get status updates over the socket and reconnect when asked to.
            return await handler(request)
        return messages.page(request, 503, _UNREACHABLE, str(fault), code="unavailable")

    async def _owner(self, sprite: str, *, is_sure: bool) -> Owner | None:
        """Return the other bridge that owns the sprite (unless `is_sure`, the cached one), None once this one does."""
        if not is_sure and (owner := await self.ownership.owner_of(sprite)) is not None:
            return owner
        try:
            await self.ownership.own(sprite)
        except OwnedElsewhere as elsewhere:
            return Owner(elsewhere.address, elsewhere.epoch)
        return None

    async def _taken(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer a request forwarded by another bridge. Never forwards it again."""
        if self.seal is None:
            return _refused(request, "unsigned")
        try:
            hop = self.seal.opened(request.method, forward.target_of(request), request.headers)
        except forward.HopRefusedError as refused:
            return _refused(request, refused.reason)
        person = hop.passed.person
        request[PERSON], request[REQUEST_ID] = person, hop.request_id
        if not self.ownership.holds(person) or self.ownership.epoch(person) != hop.epoch:
            return _refused(request, "not-owner")
        if not await self.revocations.is_good(hop.passed):
            return messages.page(request, 401, "You were logged out", "Please log in again.", code="unauthorized")
        request[forward.PASSED] = hop.passed
        await _go_on(request)
        with self.ownership.using(person):
            return await handler(request)


async def _expect(request: web.Request) -> None:
    """Delay `100 Continue` for a forwarded request until it is accepted: its body may still go to another bridge."""
    if forward.HOP not in request.headers:
        await _go_on(request)


async def _go_on(request: web.Request) -> None:
    expected = request.headers.get(hdrs.EXPECT)
    if expected is None or request.version != HttpVersion11:
        return
    if expected.lower() != "100-continue":
        raise web.HTTPExpectationFailed
    await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    # Resets the count, because no part of the answer's own head has been written.
    request.writer.output_size = 0


def _refused(request: web.Request, reason: forward.Refusal) -> web.Response:
    """Return the refusal for another bridge, which translates it for its client."""
    status, title = 403, "This request does not come from a known bridge"
    if reason == "not-owner":
        status, title = 421, "This bridge does not have that sprite"
    response = messages.page(request, status, title, code=reason.replace("-", "_"), headers={forward.ANSWER: reason})
    if not request.content.is_eof():
        response.force_close()
    return response
