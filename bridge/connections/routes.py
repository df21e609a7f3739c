"""HTTP handlers of connections for sprites, people's pages and the control socket. See docs/connections.md."""

import base64
import hashlib
import hmac
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from bridge.auth.login import Authenticator, bearer
from bridge.connections.connections import Connections
from bridge.connections.store import DAILY_CALLS, ConnectionsError, Definition
from bridge.db.database import DatabaseError
from bridge.http import messages
from bridge.proxy.sprite_tokens import SpriteTokens
from bridge.replicas.store import StoreError
from bridge.telemetry.logs import SPRITE

log = logging.getLogger(__name__)
_T = TypeVar("_T")

CALLBACK: Final = "/connections/callback"
_STATUS: Final = {
    "unauthorized": 401,
    "forbidden": 403,
    "not_found": 404,
    "changed": 409,
    "login": 409,
    "limit": 429,
    "failed": 502,
    "timeout": 504,
}
_MOST_BYTES = 1 << 20
#: Returns the person of a request, or raises AnsweredError. The second argument says whether it changes something.
Who = Callable[[web.Request, bool], Awaitable[str]]


def sprite_key(token: str, key: bytes) -> str:
    """Return the key with which a sprite uses connections. The token alone, which its agent can read, does not do."""
    digest = hmac.new(key, b"connections of a sprite\0" + token.encode(), hashlib.sha256).digest()
    return f"{token}.{base64.urlsafe_b64encode(digest).decode().rstrip('=')}"


class Query(msgspec.Struct):
    """What a sprite's agent looks for."""

    query: str


class Use(msgspec.Struct):
    """A call of a tool."""

    connection: str
    tool: str
    arguments: dict[str, Any] = {}


class Asked(msgspec.Struct):
    """A new connection: a URL, or (on the control socket only) a command."""

    name: str
    url: str = ""
    token: str = ""
    command: list[str] = []
    env: dict[str, str] = {}
    hosts: list[str] = []
    daily: int = DAILY_CALLS


class Chosen(msgspec.Struct):
    """Names of tools to pin, or digests of changed tools to agree to."""

    tools: list[str]


class SpriteRoutes:
    """Handlers for sprites. `key` is the bridge's own (see `sprite_key`)."""

    def __init__(self, connections: Connections, tokens: SpriteTokens, key: bytes) -> None:
        self._connections = connections
        self._tokens = tokens
        self._key = key

    def table(self) -> list[web.RouteDef]:
        """Return the routes; they come before the model proxy's, which has the rest below /v1/."""
        return [
            web.get("/v1/connections", answered(self._list), allow_head=False),
            web.post("/v1/connections/find", answered(self._find)),
            web.post("/v1/connections/use", answered(self._use)),
        ]

    async def _list(self, request: web.Request) -> web.Response:
        person = await self._sprite_of(request)
        pinned = await self._connections.pinned(person)
        return _json({"connections": await self._connections.listed(person), "pinned": pinned})

    async def _find(self, request: web.Request) -> web.Response:
        person, asked = await self._sprite_of(request), await _body(request, Query)
        found, others = await self._connections.find(person, asked.query)
        return _json({"tools": found, "others": others})

    async def _use(self, request: web.Request) -> web.Response:
        person, use = await self._sprite_of(request), await _body(request, Use)
        text, is_error = await self._connections.use(person, use.connection, use.tool, use.arguments)
        return _json({"text": text, "is_error": is_error})

    async def _sprite_of(self, request: web.Request) -> str:
        given = bearer(request) or ""
        token = given.rpartition(".")[0]
        is_good = hmac.compare_digest(sprite_key(token, self._key).encode(), given.encode(errors="replace"))
        sprite = await self._tokens.sprite_of(token) if is_good else None
        if sprite is None:
            raise ConnectionsError("unauthorized", "The key is unknown or was revoked.")
        request[SPRITE] = sprite
        return sprite


class PeoplesRoutes:
    """Handlers for people below `prefix`. `who` finds the person; `may_run` permits commands on this machine."""

    def __init__(self, connections: Connections, prefix: str, who: Who, *, may_run: bool = False) -> None:
        self._connections = connections
        self._prefix = prefix
        self._who = who
        self._may_run = may_run

    def table(self) -> list[web.RouteDef]:
        """Return the routes."""
        prefix = self._prefix
        return [
            web.get(prefix, answered(self._list), allow_head=False),
            web.post(prefix, answered(self._add)),
            web.delete(f"{prefix}/{{connection}}", answered(self._remove)),
            web.post(f"{prefix}/{{connection}}/test", answered(self._test)),
            web.post(f"{prefix}/{{connection}}/agree", answered(self._agree)),
            web.post(f"{prefix}/{{connection}}/pin", answered(self._pin)),
        ]

    async def _list(self, request: web.Request) -> web.Response:
        return _json({"connections": await self._connections.listed(await self._who(request, False))})

    async def _add(self, request: web.Request) -> web.Response:
        person, asked = await self._who(request, True), await _body(request, Asked)
        if asked.command and not self._may_run:
            words = "A command runs on the bridge's machine. Add it there with `sprite connections add --command`."
            raise ConnectionsError("forbidden", words)
        definition = Definition(asked.url, asked.token, asked.command, asked.env, asked.hosts, asked.daily)
        return _json(await self._connections.add(person, asked.name, definition))

    async def _remove(self, request: web.Request) -> web.Response:
        await self._connections.remove(await self._who(request, True), request.match_info["connection"])
        return _json({})

    async def _test(self, request: web.Request) -> web.Response:
        return _json(await self._connections.test(await self._who(request, True), request.match_info["connection"]))

    async def _agree(self, request: web.Request) -> web.Response:
        person, chosen = await self._who(request, True), await _body(request, Chosen)
        return _json(await self._connections.agree(person, request.match_info["connection"], chosen.tools))

    async def _pin(self, request: web.Request) -> web.Response:
        person, chosen = await self._who(request, True), await _body(request, Chosen)
        return _json(await self._connections.pin(person, request.match_info["connection"], chosen.tools))


class PageRoutes(PeoplesRoutes):
    """Handlers for pages, and logins at servers. `base` returns this bridge's URL for a request's host."""

    def __init__(
        self, connections: Connections, authenticator: Authenticator, base: Callable[[str], str | None]
    ) -> None:
        super().__init__(connections, "/connections", self._caller)
        self._authenticator = authenticator
        self._base = base

    def table(self) -> list[web.RouteDef]:
        """Return the routes."""
        return [
            web.get(CALLBACK, self._back, allow_head=False),
            web.post("/connections/{connection}/login", answered(self._begin)),
            *super().table(),
        ]

    async def _caller(self, request: web.Request, acts: bool) -> str:
        """Return the person of a page's request."""
        return (await self._authenticator.known(request, acts=acts)).person

    async def _begin(self, request: web.Request) -> web.Response:
        person, base = await self._caller(request, True), self._base(request.host)
        if base is None:
            raise ConnectionsError("forbidden", "A login needs https, or a browser on the bridge's machine.")
        name = request.match_info["connection"]
        return _json({"url": await self._connections.login(person, name, f"{base}{CALLBACK}")})

    async def _back(self, request: web.Request) -> web.StreamResponse:
        person, query = (await self._authenticator.who_looks(request)).person, request.query
        try:
            found = await self._connections.logged_in(
                person, query.get("code", ""), query.get("state", ""), query.get("iss")
            )
        except ConnectionsError as error:
            return messages.page(request, 400, "You are not logged in there", str(error), code=error.code)
        if found.state != "ready":
            return messages.page(request, 400, "You are not logged in there", found.detail, code="failed")
        return messages.redirect("/")


def answered(handler: Handler) -> Handler:
    """Return a handler whose errors become JSON: `{"error": {"code", "message"}}`."""

    async def answer(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except ConnectionsError as error:
            code, words, status = error.code, str(error), _STATUS.get(error.code, 400)
        except (DatabaseError, StoreError) as error:
            log.warning("connections cannot be read or written (%s)", type(error).__name__)
            code, words, status = "failed", "The bridge cannot reach what it stores. Try again soon.", 503
        return _json({"error": {"code": code, "message": words}}, status)

    return answer


async def _body(request: web.Request, type_: type[_T]) -> _T:
    body = await messages.body_within(request, _MOST_BYTES)
    try:
        return msgspec.json.decode(body or b"", type=type_)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise ConnectionsError("invalid", "The request is not as docs/connections.md says.") from None


def _json(value: object, status: int = 200) -> web.Response:
    headers = {"Cache-Control": "no-store"}
    return web.Response(
        body=msgspec.json.encode(value), status=status, content_type="application/json", headers=headers
    )
