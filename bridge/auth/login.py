"""Login: login links, session cookies, Bearer tokens, and origin checks.

No claim of a request is trusted. The cookie is signed and its session is looked up. Every action needs this bridge's
Origin. The Host must be known, or a foreign page could point its name at this machine (DNS rebinding).
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import shlex
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import quote, urlsplit

import msgspec
from aiohttp import web
from itsdangerous import BadSignature, TimestampSigner

from bridge.auth.passkey_store import party_of
from bridge.auth.people import SESSION_SECONDS, Link, LinkProblem, People, Session
from bridge.auth.sealed_cookie import SealedCookie
from bridge.cluster.forward import PASSED
from bridge.config import LOCAL_PERSON, Settings
from bridge.db.database import token_sha256
from bridge.http.messages import AnsweredError, Way, page, redirect
from bridge.telemetry.logs import PERSON
from sprite.common.settings import default_data, is_loopback

if TYPE_CHECKING:
    from bridge.auth.admission import OpenSockets


_MAX_CHARACTERS = 500
#: Browsers treat a backslash as a slash and drop tabs and line ends: `/\\host` and `/<tab>/host` lead to other hosts.
_PATH = re.compile(r"/(?:[^/\\\x00-\x20\x7f-\U0010ffff][^\\\x00-\x20\x7f-\U0010ffff]*)?")
#: Paths with effects, or of another login.
_NOT_BACK = ("/login", "/logout", "/oidc/", "/ws")


def return_path(asked: str) -> str:
    """Return the requested path with its query if it is safe, else `/`."""
    if len(asked) > _MAX_CHARACTERS or _PATH.fullmatch(asked) is None or asked.startswith(_NOT_BACK):
        return "/"
    return asked


def back_to(path: str) -> str:
    """Return the query that leads back to a path after a login, such as `?to=/operator`; "" for `/`."""
    path = return_path(path)
    return "" if path == "/" else f"?to={quote(path, safe='/')}"


#: Set if the request has a token with scopes, which only the API accepts.
_SCOPED: Final = web.RequestKey("scoped", bool)
_T = TypeVar("_T", bound=msgspec.Struct)
_REMEMBERED_HOSTS = 64
_MAX_TOKEN_CHARS = 200

_NEW_LINK_HERE = (
    "For a new link, start the bridge again on this machine with `make run`. Or, while it runs, "
    "run this in another terminal:"
)
_NEW_LINK_COMMAND = ".venv/bin/python -m bridge users link local"
_NEW_LINK_ELSEWHERE = (
    "For a new link, ask whoever runs this bridge. They create it with this command and your name:",
    "`python -m bridge users link NAME`",
)
_PROBLEMS: dict[LinkProblem, tuple[str, str]] = {
    "unknown": (
        "This login link is unknown",
        "Perhaps it was cut off when it was copied, or a newer one was printed since.",
    ),
    "used": ("This login link was used already", "A link logs you in once, in one browser."),
    "expired": ("This login link has expired", "A login link works for one day."),
}


@dataclass(frozen=True, slots=True)
class Caller:
    """The authenticated person of a request; `session` is the browser's, unless another bridge forwarded the request.

    `way_in` must stay valid while they are connected: the hash of a session or Bearer token, in hex.
    """

    person: str
    session: str | None
    way_in: str | None


class Authenticator:
    """Authenticate requests. `port` is the bridge's listening port."""

    def __init__(self, settings: Settings, people: People, cookie_key: bytes, port: int) -> None:
        self.people = people
        self._signer = TimestampSigner(cookie_key, salt="bridge session", digest_method=hashlib.sha256)
        self._key = cookie_key
        public = urlsplit(settings.public_url or "")
        self._is_secure = public.scheme == "https"
        self._is_proxied = settings.public_url is not None
        # Cookies ignore ports, so bridges on one machine need different names. Bridges of one service share a cookie.
        self._which = str(port) if settings.database_url is None else "shared"
        self._cookie = "__Host-bridge" if self._is_secure else f"bridge-{self._which}"
        self._public_origin = _origin(settings.public_url) if settings.public_url else None
        names = {public.hostname, urlsplit(settings.address or "").hostname, settings.host.strip("[]").lower()}
        self._hosts = names - {None, "0.0.0.0", "::"}  # noqa: S104
        # Without a configured name, a bridge on a public interface cannot know its host names.
        self._any_host = not settings.is_loopback and settings.public_url is None
        is_here = settings.is_loopback and settings.public_url is None
        folder = "" if settings.data == default_data() else f" --data {shlex.quote(str(settings.data))}"
        here = (_NEW_LINK_HERE, f"`{_NEW_LINK_COMMAND}{folder}`")
        #: Instructions to get a login link, as paragraphs of a page.
        self.new_link = here if is_here else _NEW_LINK_ELSEWHERE
        # Checked with every model call, and nearly always the same host.
        self._is_ours = lru_cache(_REMEMBERED_HOSTS)(self._names_us)
        #: The single sign-on provider's name for its button, if any.
        self._provider = None if settings.oidc is None else settings.oidc.name
        #: The WebAuthn relying party, or None if browsers store no passkeys for this address.
        self.party = party_of(settings.public_url, port)

    # --- who ---

    async def caller(self, request: web.Request) -> Caller | None:
        """Authenticate a request by Bearer token or cookie. Return None if that fails.

        With any token, even a wrong one, the cookie is ignored: only programs send tokens. Scoped ones are rejected.
        """
        if PASSED in request:
            # Another bridge authenticated the caller.
            holder, passed = None, request[PASSED]
            caller, scopes = Caller(passed.person, None, passed.way_in), passed.scopes
        elif (token := bearer(request)) is None:
            return await self.browser(request)
        elif (holder := await self.people.tokens.holder(token)) is None:
            return None
        else:
            caller, scopes = Caller(holder.person, None, holder.key.hex()), holder.scopes
        if scopes is not None:
            request[_SCOPED] = True
            return None
        if holder is not None:
            await self.people.tokens.used(holder)
        return caller

    async def browser(self, request: web.Request) -> Caller | None:
        """Authenticate a browser by its cookie alone."""
        if PASSED in request:
            passed = request[PASSED]
            return Caller(passed.person, None, passed.way_in) if passed.by == "session" else None
        session = self._session_of(request)
        if session is None:
            return None
        person = await self.people.of_session(session)
        return None if person is None else Caller(person, session, way_in_of(session))

    async def known(self, request: web.Request, *, acts: bool = False) -> Caller:
        """Return the caller, or raise AnsweredError: also if a foreign page may have sent a request that `acts`."""
        if acts and self.is_forged(request):
            raise AnsweredError(foreign_origin(request))
        return self._admitted(request, await self.caller(request))

    async def who_looks(self, request: web.Request) -> Caller:
        """Return the logged-in person who opens a page. Raises AnsweredError, which asks anybody else to log in."""
        return self._admitted(request, await self.browser(request))

    async def who_acts(self, request: web.Request) -> Caller:
        """Return the logged-in person whose page sent an action. Raises AnsweredError, also for foreign origins."""
        self.require_same_origin(request)
        return await self.who_looks(request)

    def _admitted(self, request: web.Request, caller: Caller | None) -> Caller:
        if caller is None:
            raise AnsweredError(self.logged_out(request))
        request[PERSON] = caller.person
        return caller

    def is_forged(self, request: web.Request) -> bool:
        """Return whether a foreign page may have sent the request. Pages cannot make browsers send a Bearer token."""
        has_cookie = request[PASSED].by == "session" if PASSED in request else bearer(request) is None
        return has_cookie and not self.is_same_origin(request)

    def _session_of(self, request: web.Request) -> str | None:
        cookie = request.cookies.get(self._cookie)
        if cookie is None:
            return None
        try:
            return self._signer.unsign(cookie, max_age=int(SESSION_SECONDS)).decode()
        except (BadSignature, UnicodeDecodeError):
            return None

    # --- from where ---

    def is_known_host(self, request: web.Request) -> bool:
        """Return whether the Host is a name of this bridge."""
        return self._any_host or self._is_ours(request.host)

    def _names_us(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname
        except ValueError:
            return False
        return name is not None and (name in self._hosts or is_loopback(name))

    def is_same_origin(self, request: web.Request) -> bool:
        """Return whether the Origin is this bridge. Browsers send it with every action."""
        origin = request.headers.get("Origin")
        if origin is None or (sent := _origin(origin)) is None:
            return False
        # Behind a TLS proxy, the browser's scheme differs from the bridge's.
        return sent == self._public_origin or sent[1:] == (_origin(f"{sent[0]}://{request.host}") or ())[1:]

    def require_same_origin(self, request: web.Request) -> None:
        """Raise AnsweredError if the Origin is not this bridge."""
        if not self.is_same_origin(request):
            raise AnsweredError(foreign_origin(request))

    def address(self, request: web.Request) -> str:
        """Return the client's address as far as the bridge knows it."""
        if self._is_proxied and request.remote and _is_private(request.remote):
            # The bridge's own proxy wrote the last entry.
            forwarded = request.headers.get("X-Forwarded-For", "").rpartition(",")[2].strip()
            return forwarded or request.remote
        return request.remote or ""

    def sealed_cookie(self, purpose: str, type_: type[_T]) -> SealedCookie[_T]:
        """Return the short-lived signed cookie for `purpose`, which keeps a value of `type_` in a browser."""
        return SealedCookie(self._key, purpose, type_, is_secure=self._is_secure, which=self._which)

    def form_token(self, caller: Caller) -> str:
        """Return the CSRF token for forms of a session."""
        return hmac.new(self._key, f"form {caller.session}".encode(), hashlib.sha256).hexdigest()

    def require_own_form(self, request: web.Request, caller: Caller, token: str) -> None:
        """Raise AnsweredError unless a form was sent from a page that the bridge showed to this session."""
        self.require_same_origin(request)
        if not hmac.compare_digest(token.encode("utf-8", "surrogateescape"), self.form_token(caller).encode()):
            raise AnsweredError(foreign_origin(request))

    # --- in and out ---

    async def renew(self, response: web.Response, caller: Caller) -> None:
        """Extend the caller's browser session and its cookie, unless that happened within a day."""
        if caller.session is not None and await self.people.renew_session(caller.session):
            self.remember(response, Session(caller.person, caller.session))

    async def login(self, request: web.Request) -> web.StreamResponse:
        """Answer GET /login?token=T. Browsers confirm the login first, except with the local person's own link."""
        if "prefetch" in (request.headers.get("Sec-Purpose", "") + request.headers.get("Purpose", "")):
            # A prefetch would use the link up.
            return web.Response(status=503, headers={"Cache-Control": "no-store"})
        browser = await self.browser(request)
        if "token" not in request.query:
            return self.logged_out(request) if browser is None else redirect("/")
        token = _token(request)
        link: Link | LinkProblem = "unknown" if token is None else await self.people.found_link(token)
        if not isinstance(link, Link):
            # The link was for logging in, and this browser is logged in.
            return self._wrong_link(request, link) if browser is None else redirect("/")
        if browser is not None and browser.person != link.person:
            return page(
                request,
                409,
                "Log in as somebody else?",
                f"This browser is logged in as `{browser.person}`. The link that you opened would log it in "
                f"as `{link.person}`. You would then see and change that person's agent, files and memory.",
                "If somebody sent you this link and you did not ask for it, do not continue.",
                code="other_person",
                question=(f"Continue as {link.person}", f"Stay {browser.person}"),
            )
        if browser is None and link.person != LOCAL_PERSON and _is_browser(request):
            return page(
                request,
                200,
                f"Log in as {link.person}?",
                f"The link that you opened logs this browser in as `{link.person}`. You would then see and "
                "change that person's agent, files and memory.",
                "If this is not you, or somebody sent you the link and you did not ask for it, do not continue.",
                code="not_logged_in",
                question=(f"Log in as {link.person}", "Not me"),
            )
        return await self._redeemed(request)

    async def change_person(self, request: web.Request) -> web.StreamResponse:
        """Answer POST /login?token=T, the confirmation. The caller must end the browser's previous session."""
        self.require_same_origin(request)
        return await self._redeemed(request)

    async def _redeemed(self, request: web.Request) -> web.StreamResponse:
        token = _token(request)
        redeemed = "unknown" if token is None else await self.people.redeem(token)
        if not isinstance(redeemed, Session):
            return self._wrong_link(request, redeemed)
        response = redirect("/")
        self.remember(response, redeemed)
        return response

    def _wrong_link(self, request: web.Request, problem: LinkProblem) -> web.Response:
        title, detail = _PROBLEMS[problem]
        ways = self.ways_in(request)
        return page(request, 401, title, detail, *self.new_link, code=f"link_{problem}", ways=ways)

    async def logout(self, request: web.Request) -> web.StreamResponse:
        """Answer POST /logout: remove the cookie. The caller ends the browser's session."""
        self.require_same_origin(request)
        response = redirect("/")
        response.del_cookie(self._cookie, path="/", secure=self._is_secure or None, httponly=True, samesite="Lax")
        return response

    def logged_out(self, request: web.Request) -> web.Response:
        """Return the response to an unauthenticated request, or to one with a token that has only scopes."""
        if _SCOPED in request:
            return page(
                request,
                403,
                "This token does not allow this request",
                "The token allows only its scopes. The page, the WebSocket and files need a full token.",
                code="missing_scope",
            )
        return page(
            request,
            401,
            "Please log in",
            "Open the login link that the bridge printed when it was started, or that you were sent. It works once, in "
            "one browser, which then stays logged in.",
            *self.new_link,
            code="unauthorized",
            ways=self.ways_in(request),
        )

    def ways_in(self, request: web.Request) -> list[Way]:
        """Return links to the other login methods; each leads back to the requested path after the login."""
        back = back_to(request.path_qs) if request.method == "GET" else ""
        ways = [] if self._provider is None else [Way(f"Log in with {self._provider}", f"/oidc/login{back}")]
        if self.party is not None and self.party.is_at(request.host):
            ways.append(Way("Log in with a passkey", f"/login/passkey{back}"))
        return ways

    def remember(self, response: web.Response, session: Session) -> None:
        """Set the session's cookie in the response."""
        response.set_cookie(
            self._cookie,
            self._signer.sign(session.id).decode(),
            max_age=int(SESSION_SECONDS),
            path="/",
            httponly=True,
            secure=self._is_secure or None,
            # Lax, not Strict, so that readers who follow a link from a mail or a chat are logged in.
            samesite="Lax",
        )


def way_in_of(session: str) -> str:
    """Return a session's public id, its hash."""
    return token_sha256(session).hex()


def foreign_origin(request: web.Request) -> web.Response:
    """Return the refusal for a foreign Origin."""
    return page(
        request,
        403,
        "This request does not come from Sprite's own page",
        "It was refused: another site may not act for you.",
        code="forbidden_origin",
    )


def foreign_host(request: web.Request) -> web.Response:
    """Return the refusal for an unknown Host."""
    return page(
        request,
        421,
        "This is not the address of this bridge",
        "Open the address that the bridge printed. If the bridge is behind a proxy, set "
        "`BRIDGE_PUBLIC_URL` to its public address.",
        code="unknown_host",
    )


def bearer(request: web.Request) -> str | None:
    """Return the request's Bearer token, "" if it is empty, None without one."""
    scheme, _, token = request.headers.get("Authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def _token(request: web.Request) -> str | None:
    token = request.query.get("token", "")
    return token if token and len(token) <= _MAX_TOKEN_CHARS else None


def _is_browser(request: web.Request) -> bool:
    """Return whether a browser sent the request, whose user may not know whose link it is."""
    return "Sec-Fetch-Mode" in request.headers or request.headers.get("User-Agent", "").startswith("Mozilla/")


def _origin(url: str) -> tuple[str, str, int] | None:
    """Return scheme, host and port, or None for an invalid origin such as "null"."""
    try:
        parts = urlsplit(url)
        port = parts.port or {"http": 80, "https": 443}[parts.scheme]
    except (ValueError, KeyError):
        return None
    return (parts.scheme, parts.hostname, port) if parts.hostname else None


def _is_private(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_private
    except ValueError:
        return False


async def log_in(
    authenticator: Authenticator, open_sockets: OpenSockets, request: web.Request, person: str, response: web.Response
) -> bool:
    """Start a session after a login by OIDC or passkey, its cookie in `response`. Return False for a revoked person."""
    left = await authenticator.browser(request)
    session = await authenticator.people.new_session(person)
    if session is None:
        return False
    request[PERSON] = person
    authenticator.remember(response, session)
    if left is not None and left.session is not None:
        # No browser has its cookie any more.
        await authenticator.people.end_session(left.session)
        await open_sockets.end_way_in(left.person, way_in_of(left.session))
    return True
