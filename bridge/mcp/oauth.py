"""The OAuth endpoints: metadata, registration, codes and tokens.

The `mcp` package implements the protocol. Grants and consent are the bridge's own.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

from aiohttp import web
from mcp.server.auth.handlers.authorize import AuthorizationHandler
from mcp.server.auth.handlers.register import RegistrationHandler
from mcp.server.auth.handlers.token import TokenHandler
from mcp.server.auth.middleware.client_auth import AuthenticationError, ClientAuthenticator
from mcp.server.auth.settings import ClientRegistrationOptions
from mcp.server.transport_security import RequestBodyLimitMiddleware
from starlette.responses import JSONResponse, Response
from starlette.routing import request_response

from bridge.http import messages
from bridge.mcp import addresses
from bridge.mcp.consent import Consent
from bridge.mcp.endpoint import Application, served_by
from bridge.mcp.provider import GRANTABLE, GrantedAccess
from sprite.common.limits import TokenBucket

if TYPE_CHECKING:
    from starlette.requests import Request

    from bridge.auth.admission import Admission
    from bridge.auth.login import Authenticator
    from bridge.mcp.addresses import Addresses
    from bridge.mcp.grants import Grants


_MAX_BODY_BYTES = 64 * 1024
#: Rate limit of all registrations together, which need no authentication.
_REGISTRATIONS_PER_SECOND, _REGISTRATIONS_AT_ONCE = 0.2, 20.0


class OAuth:
    """The OAuth endpoints of `addresses.py`."""

    def __init__(self, provider: GrantedAccess, authenticator: Authenticator, known_as: Addresses) -> None:
        self._known_as = known_as
        self._registrations = TokenBucket(_REGISTRATIONS_PER_SECOND, _REGISTRATIONS_AT_ONCE)
        consent = Consent(provider, authenticator, known_as)
        self._provider = provider
        self._authenticator = client_authenticator = ClientAuthenticator(provider)
        options = ClientRegistrationOptions(enabled=True, valid_scopes=list(GRANTABLE), default_scopes=list(GRANTABLE))
        self._authorization = AuthorizationHandler(provider)
        self._authorize = _application(self._asked)
        self._token = _application(TokenHandler(provider, client_authenticator).handle)
        self._register = _application(RegistrationHandler(provider, options).handle)
        self._revoke = _application(self._revoked)
        self._handlers: dict[tuple[str, str], Callable[[web.Request], Awaitable[web.StreamResponse]]] = {
            ("GET", addresses.RESOURCE_METADATA): self._resource,
            ("GET", addresses.RESOURCE_METADATA + addresses.MCP): self._resource,
            ("GET", addresses.SERVER_METADATA): self._server,
            ("GET", addresses.AUTHORIZE): lambda request: served_by(self._authorize, request),
            ("POST", addresses.AUTHORIZE): lambda request: served_by(self._authorize, request),
            ("POST", addresses.TOKEN): lambda request: served_by(self._token, request),
            ("POST", addresses.REVOKE): lambda request: served_by(self._revoke, request),
            ("POST", addresses.REGISTER): self._registered,
            ("GET", addresses.CONSENT): consent.show,
            ("POST", addresses.CONSENT): consent.take,
        }

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer a request to one of the endpoints."""
        handler = self._handlers.get((request.method, request.path))
        if handler is None:
            return messages.page(request, 405, "This address does not take that", code="refused")
        if self._known_as.base(request.host) is None:
            return messages.page(
                request,
                404,
                "Programs are let in by a token here",
                "This bridge is not reached by https, so a program cannot be let in by a browser: whoever runs the "
                "bridge can make a token with `python -m bridge users token NAME`, or set `BRIDGE_PUBLIC_URL` to its "
                "https address.",
                code="not_found",
            )
        return await handler(request)

    async def _resource(self, request: web.Request) -> web.StreamResponse:
        base = self._known_as.base(request.host)
        return _metadata(
            {
                "resource": f"{base}{addresses.MCP}",
                "resource_name": "Sprite",
                "authorization_servers": [base],
                "scopes_supported": list(GRANTABLE),
                "bearer_methods_supported": ["header"],
            }
        )

    async def _server(self, request: web.Request) -> web.StreamResponse:
        base = self._known_as.base(request.host)
        methods = ["none", "client_secret_post", "client_secret_basic"]
        return _metadata(
            {
                "issuer": base,
                "authorization_endpoint": f"{base}{addresses.AUTHORIZE}",
                "token_endpoint": f"{base}{addresses.TOKEN}",
                "registration_endpoint": f"{base}{addresses.REGISTER}",
                "revocation_endpoint": f"{base}{addresses.REVOKE}",
                "scopes_supported": list(GRANTABLE),
                "response_types_supported": ["code"],
                "grant_types_supported": ["authorization_code", "refresh_token"],
                "token_endpoint_auth_methods_supported": methods,
                "revocation_endpoint_auth_methods_supported": methods,
                "code_challenge_methods_supported": ["S256"],
                "authorization_response_iss_parameter_supported": True,
            }
        )

    async def _asked(self, request: Request) -> Response:
        """Return the package's answer, but do not redirect off-site before consent.

        Anyone can register a redirect URI and craft a link with an invalid request, which the package answers with a
        redirect there. Redirects to a program on this machine are allowed.
        """
        answer = await self._authorization.handle(request)
        target = answer.headers.get("Location")
        if target is None or target.startswith(f"{addresses.CONSENT}?"):
            return answer
        if target.startswith("http://") and addresses.is_here(target):
            return answer
        told = parse_qs(urlsplit(target).query)
        problem = {name: told[name][-1] for name in ("error", "error_description") if name in told}
        return JSONResponse(problem, 400, headers={"Cache-Control": "no-store"})

    async def _revoked(self, request: Request) -> Response:
        """Revoke a token (RFC 7009). The package's own handler refuses programs without a secret."""
        try:
            program = await self._authenticator.authenticate_request(request)
        except AuthenticationError as error:
            return JSONResponse({"error": "invalid_client", "error_description": error.message}, 401)
        text = (await request.form()).get("token")
        if not isinstance(text, str) or not text:
            return JSONResponse({"error": "invalid_request", "error_description": "`token` is missing."}, 400)
        token = await self._provider.load_access_token(text) or await self._provider.load_refresh_token(program, text)
        if token is not None and token.client_id == program.client_id:
            await self._provider.revoke_token(token)
        # Unknown tokens count as revoked (RFC 7009).
        return Response(status_code=200, headers={"Cache-Control": "no-store"})

    async def _registered(self, request: web.Request) -> web.StreamResponse:
        if (wait := self._registrations.wait(1)) > 0:
            body = {"error": "temporarily_unavailable", "error_description": "Too many programs register; try later."}
            return web.json_response(body, status=429, headers={"Retry-After": f"{wait:.0f}"})
        self._registrations.take(1)
        return await served_by(self._register, request)


def oauth(
    grants: Grants, cookie_key: bytes, admission: Admission, authenticator: Authenticator, known_as: Addresses
) -> OAuth:
    """Return the OAuth endpoints over the grants."""
    return OAuth(GrantedAccess(grants, cookie_key, known_as.is_ours, admission.revoked), authenticator, known_as)


def _application(handle: Callable[[Request], Awaitable[Response]]) -> Application:
    application: Any = RequestBodyLimitMiddleware(request_response(handle), _MAX_BODY_BYTES)
    served: Application = application
    return served


def _metadata(document: dict[str, Any]) -> web.Response:
    return web.Response(
        text=json.dumps(document), content_type="application/json", headers={"Cache-Control": "max-age=60"}
    )
