"""`/oidc/login` and `/oidc/callback`: log a browser in through the OIDC provider.

State, nonce and PKCE verifier are in a signed cookie of the browser that began, so a foreign or replayed code is
rejected. The provider's tokens are neither stored nor logged.
"""

import hmac
import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import web

from bridge.auth.admission import OpenSockets
from bridge.auth.login import Authenticator, back_to, log_in, return_path
from bridge.auth.oidc_provider import CodeRefusedError, IdTokenError, Provider, ProviderError
from bridge.auth.people import Identities, Role, groups_in, role_in, wanted_name
from bridge.auth.sealed_cookie import SealedCookie, Spent
from bridge.errors import BridgeError
from bridge.http import messages
from bridge.http.messages import Way

log = logging.getLogger(__name__)

_MAX_CODE_CHARACTERS = 4096
_PERSON_SAID_NO = "access_denied"
#: Adds an entry to the audit log: actor, action, subject and details.
Note = Callable[..., Awaitable[None]]
#: Changes a person's role, as their groups at the provider say.
ChangeRole = Callable[[str, "Role"], Awaitable[object]]


class _RefusedError(BridgeError):
    """A login is refused: the page's title and message; `code` is for programs."""

    def __init__(self, status: int, title: str, words: str, code: str) -> None:
        super().__init__(title)
        self.status = status
        self.words = words
        self.code = code


def _revoked() -> _RefusedError:
    return _RefusedError(
        403,
        "Your access was revoked",
        "Your agent and its memory still exist. Ask whoever runs this bridge to restore your access.",
        "revoked",
    )


class Begun(msgspec.Struct, frozen=True):
    """A login that a browser has started, as its cookie keeps it: `to` is the page to open after the login."""

    state: str
    nonce: str
    verifier: str
    to: str = "/"


class OidcDoor:
    """Serve the login by OIDC. `change_role` sets the role that the groups give, `note` writes the audit log."""

    def __init__(
        self,
        provider: Provider,
        identities: Identities,
        authenticator: Authenticator,
        open_sockets: OpenSockets,
        cookie: SealedCookie[Begun],
        spent: Spent,
        change_role: ChangeRole,
        note: Note,
    ) -> None:
        self._provider = provider
        self._settings = provider.settings
        self._identities = identities
        self._authenticator = authenticator
        self._open_sockets = open_sockets
        self._cookie = cookie
        self._spent = spent
        self._change_role = change_role
        self._note = note

    def table(self) -> list[web.RouteDef]:
        """Return the OIDC login's routes, which must come before the catch-all for the page's files."""
        return [
            web.get("/oidc/login", self._login, allow_head=False),
            web.get("/oidc/callback", self._callback, allow_head=False),
        ]

    async def _login(self, request: web.Request) -> web.StreamResponse:
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        begun = Begun(state, nonce, verifier, return_path(request.query.get("to", "/")))
        try:
            address = await self._provider.login_address(state=begun.state, nonce=begun.nonce, verifier=begun.verifier)
        except ProviderError as error:
            return self._said(request, self._trouble(error), begun.to)
        response = messages.redirect(address)
        self._cookie.give(response, begun)
        return response

    async def _callback(self, request: web.Request) -> web.StreamResponse:
        begun = self._cookie.of(request)
        try:
            response = await self._come_back(request, begun)
        except _RefusedError as refused:
            response = self._said(request, refused, "/" if begun is None else begun.to)
        self._cookie.take_back(response)
        return response

    async def _come_back(self, request: web.Request, begun: Begun | None) -> web.Response:
        """Finish an OIDC login and return the redirect. Raise _RefusedError."""
        state = request.query.get("state", "")
        if begun is None or not hmac.compare_digest(state.encode("utf-8", "surrogateescape"), begun.state.encode()):
            raise _RefusedError(
                400,
                "This login was not started in this browser",
                "The login was started in another browser, over ten minutes ago, or another was started since.",
                "login_expired",
            )
        code = await self._code(request, begun)
        try:
            claims = await self._provider.claims(code, verifier=begun.verifier, nonce=begun.nonce)
        except CodeRefusedError as error:
            raise _RefusedError(400, "This login was used already, or has expired", "Begin again.", "code") from error
        except ProviderError as error:
            raise self._trouble(error) from error
        except IdTokenError as error:
            log.warning("an ID token was refused: %s", error)
            raise _RefusedError(
                502,
                "The provider's answer about you is invalid",
                "The bridge's log says what is wrong with it.",
                "id_token",
            ) from error
        return await self._let_in(request, begun, claims)

    async def _code(self, request: web.Request, begun: Begun) -> str:
        """Return the authorization code from the provider's callback, once for each login. Raise _RefusedError."""
        if request.query.get("iss", self._settings.issuer) != self._settings.issuer:
            raise _RefusedError(400, "This answer is from another provider", "It was refused.", "wrong_issuer")
        if not await self._spent.spend(begun.state):
            raise _RefusedError(400, "This login was used already", "A login can be used only once.", "login_used")
        if (said := request.query.get("error")) is not None:
            log.info("the provider refused a login")
            if said == _PERSON_SAID_NO:
                words = "You declined there, or you may not use this application."
                raise _RefusedError(403, "The provider refused the login", words, "access_denied")
            raise _RefusedError(502, "The provider could not log you in", "Try again in a while.", "provider")
        code = request.query.get("code", "")
        if not 0 < len(code) <= _MAX_CODE_CHARACTERS:
            raise _RefusedError(400, "The login request is incomplete", "Begin again.", "bad_request")
        return code

    async def _let_in(self, request: web.Request, begun: Begun, claims: dict[str, Any]) -> web.Response:
        role = role_in(groups_in(claims, self._settings.groups_claim), self._settings)
        if role is None:
            raise _RefusedError(
                403,
                "None of your groups may log in here",
                "Your login at the provider worked. Ask whoever runs this bridge: it reads your groups from "
                f"the claim `{self._settings.groups_claim}`.",
                "not_in_group",
            )
        known = await self._identities.known(self._settings.issuer, claims["sub"], wanted_name(claims))
        if known is None:
            raise _revoked()
        person, is_new = known
        if is_new:
            await self._note("oidc", "users add", person, identity=claims["sub"])
        if role != "unchanged":
            await self._change_role(person, role)
        response = messages.redirect(return_path(begun.to))
        if not await log_in(self._authenticator, self._open_sockets, request, person, response):
            raise _revoked()
        log.info("somebody logged in by the provider", extra={"person": person})
        return response

    def _trouble(self, error: ProviderError) -> _RefusedError:
        log.warning("the provider of logins: %s", error)
        words = f"{error} Try again in a while, or use a login link."
        return _RefusedError(502, f"{self._settings.name} cannot log you in now", words, "provider")

    def _said(self, request: web.Request, refused: _RefusedError, to: str) -> web.Response:
        ways = [Way("Try again", f"/oidc/login{back_to(to)}")]
        return messages.page(request, refused.status, str(refused), refused.words, code=refused.code, ways=ways)
