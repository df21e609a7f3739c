"""The door: login links, session cookies, Bearer tokens, and from where a request may come.

Owns what a browser must prove before anything else happens. A request's own words are never believed: the cookie
is signed and its session looked up, the Origin of everything that acts must be ours, and so must the Host, or a
page elsewhere could have its name point at this machine (DNS rebinding).
"""

from __future__ import annotations

import hashlib
import ipaddress
import shlex
import time
from collections import OrderedDict, deque
from functools import lru_cache
from urllib.parse import urlsplit

from aiohttp import web
from itsdangerous import BadSignature, TimestampSigner

from bridge.config import Settings, default_data, is_loopback
from bridge.door.messages import page
from bridge.door.people import SESSION_SECONDS, LinkProblem, People, Session

#: Wrong links from one address before it has to wait; a link cannot be guessed, this only keeps the noise down.
_WRONG_LINKS = 10
_WRONG_LINKS_SECONDS = 60.0
_REMEMBERED_ADDRESSES = 1000
_REMEMBERED_HOSTS = 64
_MAX_TOKEN_CHARS = 200

_NEW_LINK_HERE = (
    "For a new one, start the bridge again on this machine with `make run`. Or, while it runs, type this beside it:"
)
_NEW_LINK_COMMAND = ".venv/bin/python -m bridge users link local"
_NEW_LINK_ELSEWHERE = (
    "For a new one, ask whoever runs this bridge. It is made there, with your name:",
    "`python -m bridge users link NAME`",
)
_PROBLEMS: dict[LinkProblem, tuple[str, str]] = {
    "unknown": (
        "This login link is not known here",
        "Perhaps it was cut off when it was copied, or a newer one was printed since.",
    ),
    "used": ("This login link was used already", "Each opens the door once, in one browser."),
    "expired": ("This login link has expired", "Each is good for a day."),
}


class Doorkeeper:
    """Tells who a request comes from. `port` is what the bridge listens on."""

    def __init__(self, settings: Settings, people: People, cookie_key: bytes, port: int) -> None:
        self._people = people
        self._signer = TimestampSigner(cookie_key, salt="bridge session", digest_method=hashlib.sha256)
        public = urlsplit(settings.public_url or "")
        self._is_secure = public.scheme == "https"
        self._is_proxied = settings.public_url is not None
        # Cookies do not know ports: two bridges on one machine must not log each other out.
        self._cookie = "__Host-bridge" if self._is_secure else f"bridge-{port}"
        self._public_origin = _origin(settings.public_url) if settings.public_url else None
        self._hosts = {public.hostname, settings.host.strip("[]").lower()} - {None, "0.0.0.0", "::"}  # noqa: S104
        # Without a name of its own, a bridge that listens for others cannot know what it is called.
        self._any_host = not settings.is_loopback and settings.public_url is None
        is_here = settings.is_loopback and settings.public_url is None
        folder = "" if settings.data == default_data() else f" --data {shlex.quote(str(settings.data))}"
        here = (_NEW_LINK_HERE, f"`{_NEW_LINK_COMMAND}{folder}`")
        self._new_link = here if is_here else _NEW_LINK_ELSEWHERE
        # Asked with every call of a model, and nearly always the same.
        self._is_ours = lru_cache(_REMEMBERED_HOSTS)(self._names_us)
        self._wrong: OrderedDict[str, deque[float]] = OrderedDict()

    # --- who ---

    async def person(self, request: web.Request) -> str | None:
        """The person a request comes from, by Bearer token or cookie; None if it is from no one."""
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return await self._people.of_bearer(token.strip())
        session_id = self.session_of(request)
        return None if session_id is None else await self._people.of_session(session_id)

    def is_forged(self, request: web.Request) -> bool:
        """Whether a page that is not ours may have sent it; programs with a Bearer token are no page."""
        return "Authorization" not in request.headers and not self.is_same_origin(request)

    def session_of(self, request: web.Request) -> str | None:
        """The browser's session, as its cookie has it; whether it is still good, `person` tells."""
        cookie = request.cookies.get(self._cookie)
        if cookie is None:
            return None
        try:
            return self._signer.unsign(cookie, max_age=int(SESSION_SECONDS)).decode()
        except (BadSignature, UnicodeDecodeError):
            return None

    # --- from where ---

    def is_known_host(self, request: web.Request) -> bool:
        """Whether the request was meant for us."""
        return self._any_host or self._is_ours(request.host)

    def _names_us(self, host: str) -> bool:
        try:
            name = urlsplit(f"//{host}").hostname
        except ValueError:
            return False
        return name is not None and (name in self._hosts or is_loopback(name))

    def is_same_origin(self, request: web.Request) -> bool:
        """Whether a page of ours sends it; a browser names the page's origin with whatever acts."""
        origin = request.headers.get("Origin")
        if origin is None or (sent := _origin(origin)) is None:
            return False
        # Behind a proxy that speaks https for us, the browser's scheme is not ours.
        return sent == self._public_origin or sent[1:] == (_origin(f"{sent[0]}://{request.host}") or ())[1:]

    def address(self, request: web.Request) -> str:
        """Where the request comes from, as far as it can be told."""
        if self._is_proxied and request.remote and _is_private(request.remote):
            # The last entry is the one our own proxy wrote.
            forwarded = request.headers.get("X-Forwarded-For", "").rpartition(",")[2].strip()
            return forwarded or request.remote
        return request.remote or ""

    def is_operator_machine(self, request: web.Request) -> bool:
        """Whether it comes from this very machine; behind a proxy everything seems to."""
        return not self._is_proxied and is_loopback(request.remote or "")

    # --- in and out ---

    async def renew(self, request: web.Request, response: web.Response, person: str) -> None:
        """Lets the session of somebody who comes back live on; the cookie is theirs already."""
        session = self.session_of(request)
        if session is not None and await self._people.renew_session(session):
            self._remember(response, Session(person, session))

    async def login(self, request: web.Request) -> web.StreamResponse:
        """GET /login?token=T."""
        if "prefetch" in (request.headers.get("Sec-Purpose", "") + request.headers.get("Purpose", "")):
            # A browser that only looks ahead would use the link up.
            return web.Response(status=503, headers={"Cache-Control": "no-store"})
        address = self.address(request)
        if (wait := self._must_wait(address)) > 0:
            return page(
                request,
                429,
                "Too many wrong login links",
                f"Please wait {wait:.0f} seconds, then open the newest link once more.",
                code="rate_limited",
                headers={"Retry-After": f"{wait:.0f}"},
            )
        token = request.query.get("token", "")
        redeemed: Session | LinkProblem = "unknown"
        if token and len(token) <= _MAX_TOKEN_CHARS:
            redeemed = await self._people.redeem(token)
        if isinstance(redeemed, Session):
            response = _to_the_page()
            self._remember(response, redeemed)
            return response
        if await self.person(request) is not None:
            # The link was for getting in, and this browser is in.
            return _to_the_page()
        self._note_wrong(address)
        title, detail = _PROBLEMS[redeemed]
        return page(request, 401, title, detail, *self._new_link, code=f"link_{redeemed}")

    async def logout(self, request: web.Request) -> web.StreamResponse:
        """POST /logout: the session is over, here and in the browser."""
        if not self.is_same_origin(request):
            return foreign_origin(request)
        session_id = self.session_of(request)
        if session_id is not None:
            await self._people.end_session(session_id)
        response = _to_the_page()
        response.del_cookie(self._cookie, path="/", secure=self._is_secure or None, httponly=True, samesite="Lax")
        return response

    def logged_out(self, request: web.Request) -> web.Response:
        """What somebody gets who is not logged in."""
        return page(
            request,
            401,
            "Please log in",
            "Open the login link that the bridge printed when it was started, or that you were sent. It works once, in "
            "one browser, which then stays logged in.",
            *self._new_link,
            code="unauthorized",
        )

    def _remember(self, response: web.Response, session: Session) -> None:
        response.set_cookie(
            self._cookie,
            self._signer.sign(session.id).decode(),
            max_age=int(SESSION_SECONDS),
            path="/",
            httponly=True,
            secure=self._is_secure or None,
            # Lax, not Strict: a link to the page from a mail or a chat should find its reader logged in.
            samesite="Lax",
        )

    def _must_wait(self, address: str) -> float:
        wrong = self._wrong.get(address)
        if wrong is None or len(wrong) < _WRONG_LINKS:
            return 0.0
        return max(0.0, wrong[0] + _WRONG_LINKS_SECONDS - time.monotonic())

    def _note_wrong(self, address: str) -> None:
        self._wrong.setdefault(address, deque(maxlen=_WRONG_LINKS)).append(time.monotonic())
        self._wrong.move_to_end(address)
        if len(self._wrong) > _REMEMBERED_ADDRESSES:
            self._wrong.popitem(last=False)


def foreign_origin(request: web.Request) -> web.Response:
    """What a page elsewhere gets."""
    return page(
        request,
        403,
        "This request does not come from Sprite's own page",
        "It was refused: another site may not act for you.",
        code="forbidden_origin",
    )


def foreign_host(request: web.Request) -> web.Response:
    """What a request gets that names another machine."""
    return page(
        request,
        421,
        "This is not the address of this bridge",
        "Open the address that the bridge printed. Behind a proxy, the bridge has to be told its public address: "
        "`BRIDGE_PUBLIC_URL`.",
        code="unknown_host",
    )


def _to_the_page() -> web.Response:
    return web.Response(status=303, headers={"Location": "/", "Cache-Control": "no-store"})


def _origin(url: str) -> tuple[str, str, int] | None:
    """Scheme, host and port; None for what is no origin ("null", garbage)."""
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
