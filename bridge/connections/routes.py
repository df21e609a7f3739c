"""HTTP handlers of connections for sprites, people's pages and the control socket. See docs/connections.md."""

import base64
import hashlib
import hmac
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from bridge.auth.login import Authenticator, bearer
from bridge.connections.connections import Connections
from bridge.connections.store import ConnectionsError, Definition
from bridge.db.database import DatabaseError
from bridge.http import messages
from bridge.proxy.sprite_tokens import SpriteTokens
from bridge.replicas.store import StoreError

log = logging.getLogger(__name__)

CALLBACK: Final = "/connections/callback"
_STATUS: Final = {
    "unauthorized": 401,
    "forbidden": 403,
    "not_found": 404,
    "changed": 409,
    "login": 409,
    "off": 409,
    "limit": 429,
    "failed": 502,
    "timeout": 504,
}
_MOST_BYTES = 1 << 20
#: Returns the person of a request, or raises AnsweredError or ConnectionsError.
Who = Callable[[web.Request], Awaitable[str]]


class Query(msgspec.Struct):
    """Body of a request: a search for tools by a sprite's agent."""

    query: str


class Use(msgspec.Struct):
    """Body of a request: a call of a tool by a sprite's agent; `binds` as in `Connections.use`."""

    connection: str
    tool: str
    arguments: dict[str, Any] = {}
    binds: bool = False


class Asked(Definition):
    """Body of a request: a new connection with a URL, or (on the control socket only) with a command."""

    name: str = ""


class Switch(msgspec.Struct):
    """Body of a request: whether a connection may be used where the person is not asked about words from outside."""

    on: bool


class Chosen(msgspec.Struct):
    """Body of a request: names of tools to pin, or digests of changed tools to agree to."""

    tools: list[str]


def sprite_key(token: str, key: bytes) -> str:
    """Return the key with which a sprite uses connections. The token alone is not enough: the agent can read it."""
    digest = hmac.new(key, b"connections of a sprite\0" + token.encode(), hashlib.sha256).digest()
    return f"{token}.{base64.urlsafe_b64encode(digest).decode().rstrip('=')}"


def sprite_routes(connections: Connections, tokens: SpriteTokens, key: bytes) -> list[web.RouteDef]:
    """Return the routes for sprites. They come before the model proxy's, which has the rest below /v1/."""

    async def who(request: web.Request) -> str:
        given = bearer(request) or ""
        token = given.rpartition(".")[0]
        is_good = hmac.compare_digest(sprite_key(token, key).encode(), given.encode(errors="replace"))
        sprite = await tokens.sprite_of(token) if is_good else None
        if sprite is None:
            raise ConnectionsError("unauthorized", "The key is unknown or was revoked.")
        return sprite

    async def listed(person: str) -> object:
        return {"connections": await connections.listed(person), "pinned": await connections.pinned(person)}

    async def find(person: str, query: str) -> object:
        found, others = await connections.find(person, query)
        return {"tools": found, "others": others}

    async def use(person: str, **call: Any) -> object:
        text, is_error = await connections.use(person, **call)
        return {"text": text, "is_error": is_error}

    return [
        _route("GET", "/v1/connections", who, listed),
        _route("POST", "/v1/connections/find", who, find, Query),
        _route("POST", "/v1/connections/use", who, use, Use),
    ]


def peoples_routes(connections: Connections, prefix: str, who: Who, *, may_run: bool = False) -> list[web.RouteDef]:
    """Return the routes for people below `prefix`; `may_run` permits commands on the bridge's machine."""

    async def listed(person: str) -> object:
        return {"connections": await connections.listed(person)}

    async def add(person: str, name: str, **given: Any) -> object:
        if given["command"] and not may_run:
            words = "A command runs on the bridge's machine. Add it there with `sprite connections add --command`."
            raise ConnectionsError("forbidden", words)
        return await connections.add(person, name, Definition(**given | {"login": None}))

    one = f"{prefix}/{{connection}}"
    return [
        _route("GET", prefix, who, listed),
        _route("POST", prefix, who, add, Asked),
        _route("DELETE", one, who, connections.remove),
        _route("POST", f"{one}/test", who, connections.test),
        _route("POST", f"{one}/agree", who, connections.agree, Chosen),
        _route("POST", f"{one}/switch", who, connections.switch, Switch),
        _route("POST", f"{one}/pin", who, connections.pin, Chosen),
    ]


def page_routes(
    connections: Connections, authenticator: Authenticator, base: Callable[[str], str | None]
) -> list[web.RouteDef]:
    """Return the routes for pages, with logins at servers. `base` returns this bridge's URL for a request's host."""

    async def who(request: web.Request) -> str:
        return (await authenticator.known(request, acts=request.method != "GET")).person

    async def begin(request: web.Request) -> web.StreamResponse:
        person, here = await who(request), base(request.host)
        if here is None:
            raise ConnectionsError("forbidden", "A login needs https, or a browser on the bridge's machine.")
        url = await connections.login(person, request.match_info["connection"], f"{here}{CALLBACK}")
        return messages.as_json({"url": url})

    async def back(request: web.Request) -> web.StreamResponse:
        person, query = (await authenticator.who_looks(request)).person, request.query
        await connections.logged_in(person, query.get("code", ""), query.get("state", ""), query.get("iss"))
        return messages.redirect("/")

    return [
        # Before those with a name in their path.
        web.get(CALLBACK, _answered(back), allow_head=False),
        web.post("/connections/{connection}/login", _answered(begin)),
        *peoples_routes(connections, "/connections", who),
    ]


def _route(
    method: str, path: str, who: Who, work: Callable[..., Awaitable[object]], type_: type[msgspec.Struct] | None = None
) -> web.RouteDef:
    """Return a route that answers with the result of `work(person, [connection], **fields of the body)`."""

    async def answer(request: web.Request) -> web.StreamResponse:
        person, fields = await who(request), {}
        if type_ is not None:
            try:
                body = msgspec.json.decode(await messages.body_within(request, _MOST_BYTES) or b"", type=type_)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                raise ConnectionsError("invalid", "The request is not as docs/connections.md says.") from None
            fields = msgspec.structs.asdict(body)
        names = [request.match_info["connection"]] if "connection" in request.match_info else []
        return messages.as_json(await work(person, *names, **fields) or {})

    return web.route(method, path, _answered(answer))


def _answered(handler: Handler) -> Handler:
    """Return a handler that turns the errors of this one into responses."""

    async def answer(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except ConnectionsError as error:
            return messages.page(request, _STATUS.get(error.code, 400), str(error), code=error.code)
        except (DatabaseError, StoreError) as error:
            log.warning("connections cannot be read or written (%s)", type(error).__name__)
            words = "The bridge cannot reach what it stores. Try again soon."
            return messages.page(request, 503, words, code="failed")

    return answer
