"""HTTP handlers of the model proxy: forward each sprite's calls to the one configured upstream with the real key.

Owns the HTTP client, the handlers and the calls in flight; `call` has the steps of a call. Members of a request are
forwarded as they were written, and an answer byte for byte.
"""

import logging
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from functools import partial

from aiohttp import ClientSession, ClientTimeout, DummyCookieJar, TCPConnector, web

from bridge.db.database import DatabaseError
from bridge.proxy.accounts import Accounts
from bridge.proxy.body import MAX_BODY_BYTES, Patience, too_large
from bridge.proxy.call import Call, Desk, Path
from bridge.proxy.errors import RefusedError
from bridge.proxy.sprite_tokens import SpriteTokens
from bridge.proxy.upstream import ApiFeatures, Models, Upstream
from bridge.telemetry.logs import SPRITE
from sprite.common.limits import TokenBucket
from sprite.common.tasks import Service, TaskSet

#: An agent with ten busy subagents makes about a hundred calls a minute.
DEFAULT_PER_MINUTE = 300
DEFAULT_AT_ONCE = 32
_MINUTE = 60.0


class RateLimits:
    """Limit the rate and the number of each sprite's model calls. `clock` returns monotonic seconds."""

    def __init__(
        self,
        per_minute: int = DEFAULT_PER_MINUTE,
        at_once: int = DEFAULT_AT_ONCE,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._per_minute = per_minute
        self._at_once = at_once
        self._buckets = defaultdict[str, TokenBucket](lambda: TokenBucket(per_minute / _MINUTE, per_minute, clock))
        #: Start times of the calls in flight (Unix seconds), oldest first, by sprite.
        self._open = defaultdict[str, dict[object, float]](dict)

    @contextmanager
    def counted(self, sprite: str) -> Iterator[None]:
        """Count a call while the block runs. Raise RefusedError if it exceeds a limit."""
        began, bucket, call = self._open[sprite], self._buckets[sprite], object()
        if len(began) >= self._at_once:
            words = f"This sprite already has {self._at_once} calls in flight, the maximum. Try again soon."
            # Most calls end within seconds.
            raise RefusedError(429, words, retry_after=1)
        if wait := bucket.wait(1):
            words = f"This sprite has used its {self._per_minute} calls for this minute. Try again soon."
            raise RefusedError(429, words, retry_after=math.ceil(wait))
        bucket.take(1)
        began[call] = time.time()
        try:
            yield
        finally:
            del began[call]

    def in_flight(self) -> dict[str, float]:
        """Return the number of calls in flight, by sprite."""
        return {sprite: len(began) for sprite, began in self._open.items()}

    def oldest(self) -> dict[str, float]:
        """Return the start of the oldest call in flight (Unix seconds), by sprite."""
        return {sprite: next(iter(began.values())) for sprite, began in self._open.items() if began}


log = logging.getLogger(__name__)

_CONNECT_SECONDS = 10.0
#: The SDKs' own transports close an idle connection after this time.
_IDLE_SECONDS = 15.0


class LlmProxy(Service):
    """Forward sprites' model calls to the upstream: `async with LlmProxy(...) as proxy:`.

    Its server must cancel a handler whose client disconnects (`AppRunner(..., handler_cancellation=True)`): otherwise
    the upstream's answer is not cancelled while nothing is being sent.
    """

    def __init__(
        self,
        upstream: Upstream,
        tokens: SpriteTokens,
        models: Models,
        accounts: Accounts,
        rate_limits: RateLimits,
        patience: Patience | None = None,
        exits: ApiFeatures | None = None,
    ) -> None:
        self._upstream = upstream
        self._tokens = tokens
        self._models = models
        self._accounts = accounts
        self.rate_limits = rate_limits
        self._patience = patience or Patience()
        self._exits = exits or ApiFeatures()
        self._calls = TaskSet()
        self._desk: Desk | None = None
        self._answered: Counter[str] = Counter()

    async def _open(self, stack: AsyncExitStack) -> None:
        session = ClientSession(
            # Concurrency is limited for each sprite, not here.
            connector=TCPConnector(limit=0, keepalive_timeout=_IDLE_SECONDS),
            cookie_jar=DummyCookieJar(),
            timeout=ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
            skip_auto_headers=("User-Agent", "Accept", "Content-Type"),
        )
        await stack.enter_async_context(session)
        await stack.enter_async_context(self._calls)
        self._desk = Desk(session, self._upstream, self._exits, self._models, self._accounts, self._patience)

    def routes(self) -> list[web.RouteDef]:
        """Return the routes that the CLI and the SDKs use; other paths below /v1/ answer like the API."""
        return [
            # Requested before the first call, without credentials.
            web.head("/", _hello),
            web.post("/v1/messages", partial(self._call, path="/v1/messages")),
            web.post("/v1/messages/count_tokens", partial(self._call, path="/v1/messages/count_tokens")),
            web.get("/v1/models", self.list_models, allow_head=False),
            web.route("*", "/v1/{rest:.*}", _nothing_here),
        ]

    def answered(self) -> Mapping[str, float]:
        """Return the number of calls since the start, by response status."""
        return self._answered

    async def list_models(self, request: web.Request) -> web.StreamResponse:
        """Handle GET /v1/models: list the models that sprites may use."""
        try:
            await self._sprite_of(request)
        except RefusedError as refused:
            return refused.response()
        models = [{"type": "model", "id": name, "display_name": name} for name in self._models.names()]
        return web.json_response({"data": models, "has_more": False, "first_id": None, "last_id": None})

    async def _call(self, request: web.Request, path: Path) -> web.StreamResponse:
        # It is cancelled with its handler when the client disconnects, and with all others when the bridge stops.
        response = await self._calls.start(self._answer(request, path), "model call")
        self._answered[str(response.status)] += 1
        return response

    async def _answer(self, request: web.Request, path: Path) -> web.StreamResponse:
        desk = self._desk
        if desk is None or desk.session.closed:
            return RefusedError(503, "The bridge is stopping.", retry_after=2).response()
        try:
            sprite = await self._sprite_of(request)
            _check_head(request)
            call = Call(desk, request, sprite, path)
            with self.rate_limits.counted(sprite):
                return await call.answer()
        except RefusedError as refused:
            return refused.response()

    async def _sprite_of(self, request: web.Request) -> str:
        """Return the sprite that sent the request. Raise RefusedError for any other client."""
        scheme, _, bearer = request.headers.get("Authorization", "").partition(" ")
        given = [request.headers.get("X-Api-Key", ""), bearer.strip() if scheme.lower() == "bearer" else ""]
        # A client may send both headers, one with a placeholder.
        try:
            sprites = {sprite for token in given if token and (sprite := await self._tokens.sprite_of(token))}
        except DatabaseError as error:
            log.warning("the sprite of a token cannot be looked up (%s)", error.code)
            raise RefusedError(503, "The bridge's database is unreachable. Try again soon.", retry_after=2) from error
        if len(sprites) != 1:
            raise RefusedError(401, "The token is unknown or was revoked.")
        sprite = sprites.pop()
        request[SPRITE] = sprite
        return sprite


def _check_head(request: web.Request) -> None:
    """Raise RefusedError for a model request whose headers show that its body cannot be forwarded."""
    if (request.content_length or 0) > MAX_BODY_BYTES:
        raise too_large()
    if request.headers.get("Content-Encoding", "identity").lower() != "identity":
        # The server would decompress the body, and the forwarded bytes would differ from the sent ones.
        raise RefusedError(400, "Compressed bodies are not accepted. Send the body without Content-Encoding.")


async def _hello(_request: web.Request) -> web.Response:
    return web.Response()


async def _nothing_here(request: web.Request) -> web.Response:
    """Answer 405 if only the method is wrong, otherwise 404; below /v1/messages always 404, as at the API."""
    methods: set[str] = set()
    for resource in request.app.router.resources():
        if resource.canonical.startswith("/v1/") and not resource.canonical.startswith("/v1/messages"):
            methods |= (await resource.resolve(request))[1]
    if methods - {"*"}:
        takes = ", ".join(sorted(methods - {"*"}))
        answer = RefusedError(405, f"This address accepts {takes}, not {request.method}.").response()
        answer.headers["Allow"] = takes
        return answer
    return RefusedError(
        404,
        "There is nothing at this address. Below /v1/ there are chat/completions, models, observations and memory/boot "
        "for other programs, and messages for sprites.",
    ).response()
