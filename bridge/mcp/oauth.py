"""The OAuth endpoints: metadata, registration, codes and tokens, and the page on which a person admits a program.

The `mcp` package implements the protocol. Grants and consent are the bridge's own.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from aiohttp import web
from aiohttp.typedefs import Handler
from mcp.server.auth.handlers.authorize import AuthorizationHandler
from mcp.server.auth.handlers.register import RegistrationHandler
from mcp.server.auth.handlers.token import TokenHandler
from mcp.server.auth.middleware.client_auth import ClientAuthenticator
from mcp.server.auth.provider import AuthorizationParams, construct_redirect_uri
from mcp.server.auth.settings import ClientRegistrationOptions
from mcp.server.transport_security import RequestBodyLimitMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import request_response

from bridge.auth.admission import Admission
from bridge.auth.login import Authenticator
from bridge.auth.tokens import MEANING, Scope
from bridge.http import messages
from bridge.http.messages import body_within
from bridge.mcp import mount
from bridge.mcp.endpoint import Application, served_by
from bridge.mcp.grants import Grants
from bridge.mcp.mount import Addresses
from bridge.mcp.provider import GRANTABLE, GrantedAccess, Program, leads_to
from bridge.telemetry.logs import PERSON
from sprite.common.limits import TokenBucket

_MAX_ANSWER_BYTES, _MAX_FIELDS = 4_096, 20
_NAME_CHARS = 60
#: Not preselected, because missions cost money and have effects.
_NOT_TICKED: Final[frozenset[Scope]] = frozenset({"ask"})


class Consent:
    """Serve the consent page: GET shows the question, POST takes the answer."""

    def __init__(self, provider: GrantedAccess, authenticator: Authenticator, addresses: Addresses) -> None:
        self._provider = provider
        self._authenticator = authenticator
        self._addresses = addresses

    async def show(self, request: web.Request) -> web.StreamResponse:
        """Return the page with the question."""
        person, program, params = await self._asked(request)
        wanted = set(params.scopes or GRANTABLE)
        target = str(params.redirect_uri)
        return messages.document(
            "consent.html",
            "Give a program access?",
            forms=f"'self' {leads_to(target) or ''}",
            program=_shown(program.client_name),
            person=person,
            place=_shown(_place(target)),
            scopes=[(scope, MEANING[scope], scope in wanted and scope not in _NOT_TICKED) for scope in GRANTABLE],
        )

    async def take(self, request: web.Request) -> web.StreamResponse:
        """Take the person's answer and redirect to the program."""
        self._authenticator.require_same_origin(request)
        person, program, params = await self._asked(request)
        form = await _form(request)
        scopes = [scope for scope in GRANTABLE if scope in form.get("scope", [])]
        issuer = self._addresses.base(request.host)
        if "refused" in form or not scopes:
            answer = {"error": "access_denied", "error_description": "The person denied the program access."}
        else:
            answer = {"code": await self._provider.agreed(program, params, person, list(scopes))}
        target = construct_redirect_uri(str(params.redirect_uri), **answer, state=params.state, iss=issuer)
        return messages.redirect(target)

    async def _asked(self, request: web.Request) -> tuple[str, Program, AuthorizationParams]:
        """Return the person, the program and its request. AnsweredError if it has expired or nobody is logged in."""
        asked = await self._provider.asked(request.query.get("request", ""))
        if asked is None:
            words = "A program's request for access is open for ten minutes. Start again in that program."
            page = messages.page(request, 400, "This request is no longer open", words, code="expired")
            raise messages.AnsweredError(page)
        caller = await self._authenticator.browser(request)
        if caller is None:
            page = messages.page(
                request,
                401,
                "Log in first",
                "A program asks for access, but nobody is logged in in this browser. Open your login link in this "
                "browser, then come back to this page and reload it.",
                *self._authenticator.new_link,
                code="unauthorized",
                ways=self._authenticator.ways_in(request),
            )
            raise messages.AnsweredError(page)
        request[PERSON] = caller.person
        program, params = asked
        return caller.person, program, params


async def _form(request: web.Request) -> dict[str, list[str]]:
    if (body := await body_within(request, _MAX_ANSWER_BYTES)) is None:
        raise web.HTTPRequestEntityTooLarge(_MAX_ANSWER_BYTES)
    try:
        return parse_qs(body.decode("utf-8", "replace"), max_num_fields=_MAX_FIELDS)
    except ValueError as error:
        raise web.HTTPRequestEntityTooLarge(_MAX_FIELDS) from error


def _place(uri: str) -> str:
    parts = urlsplit(uri)
    return parts.netloc if parts.scheme in {"http", "https"} else f"{parts.scheme}:"


def _shown(text: str | None) -> str:
    """Return untrusted text on one line, shortened, without backticks and unprintable or bidirectional controls."""
    plain = "".join(sign for sign in (text or "") if sign.isprintable() and sign != "`")
    plain = " ".join(plain.split())
    return (plain if len(plain) <= _NAME_CHARS else f"{plain[:_NAME_CHARS]}…") or "(no name)"


_MAX_BODY_BYTES = 64 * 1024
_METADATA_HEADERS = {"Cache-Control": "max-age=60"}
#: Rate limit of all registrations together, which need no authentication.
_REGISTRATIONS_PER_SECOND, _REGISTRATIONS_AT_ONCE = 0.2, 20.0


class OAuth:
    """Serve the OAuth endpoints, whose routes `mount.py` has."""

    def __init__(
        self, grants: Grants, cookie_key: bytes, admission: Admission, authenticator: Authenticator, known_as: Addresses
    ) -> None:
        self._known_as = known_as
        self._registrations = TokenBucket(_REGISTRATIONS_PER_SECOND, _REGISTRATIONS_AT_ONCE)
        provider = GrantedAccess(grants, cookie_key, known_as.is_ours, admission.revoked)
        consent = Consent(provider, authenticator, known_as)
        options = ClientRegistrationOptions(enabled=True, valid_scopes=list(GRANTABLE), default_scopes=list(GRANTABLE))
        self._authorization = AuthorizationHandler(provider)
        self._authorize = _application(self._asked)
        self._token = _application(TokenHandler(provider, ClientAuthenticator(provider)).handle)
        self._register = _application(RegistrationHandler(provider, options).handle)
        self._handlers: dict[tuple[str, str], Handler] = {
            ("GET", mount.RESOURCE_METADATA): self._resource,
            ("GET", mount.RESOURCE_METADATA + mount.MCP): self._resource,
            ("GET", mount.SERVER_METADATA): self._server,
            ("GET", mount.AUTHORIZE): lambda request: served_by(self._authorize, request),
            ("POST", mount.AUTHORIZE): lambda request: served_by(self._authorize, request),
            ("POST", mount.TOKEN): lambda request: served_by(self._token, request),
            ("POST", mount.REGISTER): self._registered,
            ("GET", mount.CONSENT): consent.show,
            ("POST", mount.CONSENT): consent.take,
        }

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer a request to one of the endpoints."""
        handler = self._handlers.get((request.method, request.path))
        if handler is None:
            return messages.page(request, 405, "This address does not accept this request", code="refused")
        if self._known_as.base(request.host) is None:
            return messages.page(
                request,
                404,
                "Programs need a token here",
                "This bridge has no https address, so programs cannot ask for access in a browser. Whoever runs "
                "the bridge can make a token with `python -m bridge users token NAME`, or set "
                "`BRIDGE_PUBLIC_URL` to its https address.",
                code="not_found",
            )
        return await handler(request)

    async def _resource(self, request: web.Request) -> web.StreamResponse:
        base = self._known_as.base(request.host)
        document = {
            "resource": f"{base}{mount.MCP}",
            "resource_name": "Sprite",
            "authorization_servers": [base],
            "scopes_supported": list(GRANTABLE),
            "bearer_methods_supported": ["header"],
        }
        return web.json_response(document, headers=_METADATA_HEADERS)

    async def _server(self, request: web.Request) -> web.StreamResponse:
        base = self._known_as.base(request.host)
        document = {
            "issuer": base,
            "authorization_endpoint": f"{base}{mount.AUTHORIZE}",
            "token_endpoint": f"{base}{mount.TOKEN}",
            "registration_endpoint": f"{base}{mount.REGISTER}",
            "scopes_supported": list(GRANTABLE),
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "token_endpoint_auth_methods_supported": ["none", "client_secret_post", "client_secret_basic"],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
        }
        return web.json_response(document, headers=_METADATA_HEADERS)

    async def _asked(self, request: Request) -> Response:
        """Return the package's answer, but do not redirect off-site before consent.

        Anyone can register a redirect URI and craft a link with an invalid request, which the package answers with a
        redirect there. Redirects to a program on this machine are allowed.
        """
        answer = await self._authorization.handle(request)
        target = answer.headers.get("Location")
        if target is None or target.startswith(f"{mount.CONSENT}?"):
            return answer
        if target.startswith("http://") and mount.is_here(target):
            return answer
        told = parse_qs(urlsplit(target).query)
        problem = {name: told[name][-1] for name in ("error", "error_description") if name in told}
        return JSONResponse(problem, 400, headers={"Cache-Control": "no-store"})

    async def _registered(self, request: web.Request) -> web.StreamResponse:
        if (wait := self._registrations.wait(1)) > 0:
            words = "Too many programs have registered. Try again later."
            body = {"error": "temporarily_unavailable", "error_description": words}
            return web.json_response(body, status=429, headers={"Retry-After": f"{wait:.0f}"})
        self._registrations.take(1)
        return await served_by(self._register, request)


def _application(handle: Callable[[Request], Awaitable[Response]]) -> Application:
    application: Any = RequestBodyLimitMiddleware(request_response(handle), _MAX_BODY_BYTES)
    served: Application = application
    return served
