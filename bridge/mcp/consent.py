"""The page on which a person grants a program access or refuses it. The program's own name is shown as unverified."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, urlsplit

from aiohttp import web
from mcp.server.auth.provider import AuthorizationParams, construct_redirect_uri

from bridge.auth.tokens import MEANING, Scope
from bridge.http import messages
from bridge.http.messages import body_within
from bridge.mcp.provider import GRANTABLE, GrantedAccess, Program, leads_to
from bridge.telemetry.logs import PERSON

if TYPE_CHECKING:
    from bridge.auth.login import Authenticator
    from bridge.mcp.addresses import Addresses

_MAX_ANSWER_BYTES, _MAX_FIELDS = 4_096, 20
_NAME_CHARS = 60
#: Not preselected, because missions cost money and have effects.
_NOT_TICKED: Final[frozenset[Scope]] = frozenset({"ask"})


class Consent:
    """The consent page: GET shows the question, POST takes the answer."""

    def __init__(self, provider: GrantedAccess, authenticator: Authenticator, addresses: Addresses) -> None:
        self._provider = provider
        self._authenticator = authenticator
        self._addresses = addresses

    async def show(self, request: web.Request) -> web.StreamResponse:
        """Show the question."""
        person, program, params = await self._asked(request)
        wanted = set(params.scopes or GRANTABLE)
        target = str(params.redirect_uri)
        return messages.document(
            "consent.html",
            "Let a program in?",
            forms=f"'self' {leads_to(target) or ''}",
            program=_shown(program.client_name),
            person=person,
            place=_shown(_place(target)),
            scopes=[(scope, MEANING[scope], scope in wanted and scope not in _NOT_TICKED) for scope in GRANTABLE],
        )

    async def take(self, request: web.Request) -> web.StreamResponse:
        """Take the answer and redirect to the program."""
        self._authenticator.require_same_origin(request)
        person, program, params = await self._asked(request)
        form = await _form(request)
        scopes = [scope for scope in GRANTABLE if scope in form.get("scope", [])]
        issuer = self._addresses.base(request.host)
        if "refused" in form or not scopes:
            answer = {"error": "access_denied", "error_description": "The person did not let the program in."}
        else:
            answer = {"code": await self._provider.agreed(program, params, person, list(scopes))}
        target = construct_redirect_uri(str(params.redirect_uri), **answer, state=params.state, iss=issuer)
        return web.Response(status=303, headers={"Location": target, "Cache-Control": "no-store"})

    async def _asked(self, request: web.Request) -> tuple[str, Program, AuthorizationParams]:
        """Return the person, the program and its request. Raises AnsweredError if there is no question."""
        asked = await self._provider.asked(request.query.get("request", ""))
        if asked is None:
            raise messages.AnsweredError(
                messages.page(
                    request,
                    400,
                    "Nothing is asked here any more",
                    "A question waits for ten minutes. Begin again in the program that wants to be let in.",
                    code="expired",
                )
            )
        caller = await self._authenticator.browser(request)
        if caller is None:
            raise messages.AnsweredError(
                messages.page(
                    request,
                    401,
                    "Log in first",
                    "A program wants to be let in, and this browser does not know yet who you are. Open your login "
                    "link in this browser, then come back to this page and load it again.",
                    *self._authenticator.new_link,
                    code="unauthorized",
                    ways=self._authenticator.ways_in(request),
                )
            )
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
