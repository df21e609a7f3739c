"""Forward requests to the bridge that owns the sprite: HTTP, streamed both ways, and WebSockets.

Bodies are not buffered: a slow receiver pauses the sender. Concurrent requests (per person and in total), heads, the
time to connect and the silence of the other bridge are limited. A request is forwarded at most once. Its body is
read only after the other bridge accepted it. The caller is authenticated before.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, Self

import aiohttp
from aiohttp import WSCloseCode, hdrs, web
from multidict import CIMultiDict
from yarl import URL

from bridge.cluster.exchange import UNREAD, ClientGoneError, Exchange, HopError, LookAgainError
from bridge.cluster.hop_socket import STALL_SECONDS, PassedSocket
from bridge.cluster.passed import ANSWER, PREFIX, target_of
from bridge.cluster.pulse import BEAT_SECONDS, Pulses, SilentError

if TYPE_CHECKING:
    from types import TracebackType

    from bridge.cluster.ownership import Owner
    from bridge.cluster.passed import Hop, Seal

log = logging.getLogger(__name__)

_Send = Callable[[aiohttp.ClientRequest], Awaitable[aiohttp.ClientResponse]]

#: Concurrent forwarded requests of one person (the sum of the limits per endpoint), and in total.
MOST_EACH, MOST = 96, 8192
#: Limit for the head of a request and of an answer.
MAX_HEAD_BYTES = 32 * 1024
_CONNECT_SECONDS = 3.0
#: Shorter than a bridge keeps an idle connection.
_IDLE_SECONDS = 15.0
#: Headers of a single connection, or credentials, which the signature replaces.
_DROPPED: Final = frozenset(
    "connection keep-alive proxy-connection proxy-authenticate proxy-authorization te trailer transfer-encoding "
    "upgrade expect authorization cookie forwarded".split()
)
#: Headers with this prefix pass between the client and the owner during a WebSocket's handshake.
_HANDSHAKE: Final = "sec-websocket-"
#: Set by this bridge itself. The other bridge uses the same request id.
_OWN: Final = frozenset({"date", "server", "x-request-id"})
_NEVER_PASSED: Final = (PREFIX.lower(), "x-forwarded-", _HANDSHAKE)
_NO_BODY: Final = frozenset({204, 304})
#: Content encodings that the server has already decoded, so the body's length differs.
_UNDONE: Final = frozenset({"gzip", "deflate", "br", "zstd"})
#: An unanswered request is logged once per sprite in this time, for this many sprites at most.
_AGAIN_SECONDS, _MOST_REMEMBERED = 60.0, 10_000
_STOPPING: Final = "the bridge stops"
_NOT_BELIEVED: Final = "not_believed"
_REASONS: Final = {
    "unsigned": "The bridge that has your agent does not believe this one: whoever runs them has to set the same "
    "BRIDGE_CLUSTER_SECRET for each.",
    "late": "The clocks of two bridges differ too much: whoever runs them has to set them right.",
    "replayed": "The bridge that has your agent has seen this very request before.",
}


class Hops:
    """Forwarder: `async with Hops(seal) as hops:`, then `passed_on` for each request.

    Without a `seal` it forwards none.
    """

    def __init__(
        self,
        seal: Seal | None,
        *,
        max_message_bytes: int,
        most: int = MOST,
        most_each: int = MOST_EACH,
        connect_seconds: float = _CONNECT_SECONDS,
        beat_seconds: float = BEAT_SECONDS,
        stall_seconds: float = STALL_SECONDS,
    ) -> None:
        self._seal = seal
        self._max_message_bytes = max_message_bytes
        self._most = most
        self._most_each = most_each
        self._connect_seconds = connect_seconds
        self._stall_seconds = stall_seconds
        self._under_way: Counter[str] = Counter()
        self._sockets: set[PassedSocket] = set()
        #: Bridges that rejected this bridge's signature the last time, so that the log reports it once.
        self._unbelieving: set[str] = set()
        self._session: aiohttp.ClientSession | None = None
        self._is_ending = False
        self._complaints = _Complaints()
        self._pulses = Pulses(self._opened, beat_seconds)

    async def __aenter__(self) -> Self:
        # Concurrency is limited in `_counted` instead.
        connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE_SECONDS)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=self._connect_seconds)
        self._session = aiohttp.ClientSession(
            connector=connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=timeout,
            skip_auto_headers=(hdrs.USER_AGENT, hdrs.ACCEPT, hdrs.ACCEPT_ENCODING, hdrs.CONTENT_TYPE),
            auto_decompress=False,
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.end_all()
        await self._pulses.close()
        if self._session is not None:
            await self._session.close()

    async def end_all(self) -> None:
        """Close forwarded WebSockets because the bridge stops. No new request is forwarded after that."""
        self._is_ending = True
        await asyncio.gather(*(socket.close(WSCloseCode.GOING_AWAY, _STOPPING) for socket in tuple(self._sockets)))

    def under_way(self) -> dict[str, float]:
        """Return the number of forwarded requests by person."""
        return {person: count for person, count in self._under_way.items() if count}

    async def passed_on(self, request: web.Request, owner: Owner, hop: Hop, client: str) -> web.StreamResponse:
        """Forward a request to `owner` and return its answer. `client` is the address of the request's origin.

        Raises LookAgainError if that bridge does not own the sprite, HopError if there is no answer, and
        ConnectionResetError if the answer broke off.
        """
        exchange = Exchange(request)
        with self._counted(hop.passed.person):
            try:
                async with self._pulses.felt(owner.address):
                    headers = self._headers(request, hop, client)
                    url = URL(f"{owner.address}{target_of(request)}", encoded=True)
                    answer = await self._answer(exchange, url, headers, hop)
            except ClientGoneError:
                raise
            except HopError as error:
                if error.code == _NOT_BELIEVED and owner.address not in self._unbelieving:
                    self._unbelieving.add(owner.address)
                    log.error(  # noqa: TRY400 - nothing failed here
                        "the bridge at %s does not believe what this one passes on: %s", owner.address, error
                    )
                raise
            except (aiohttp.ClientError, SilentError, OSError, TimeoutError) as error:
                if exchange.refused is not None:
                    # The client's body did not arrive, or was too large.
                    raise exchange.refused from error
                # After each change of owner, everyone who opens the sprite runs into this.
                log.log(
                    self._complaints.level(hop.passed.person, owner),
                    "a bridge that has a sprite did not answer (%s)",
                    type(error).__name__,
                    extra={"person": hop.passed.person, "request_id": hop.request_id},
                )
                return await exchange.broken_off(error)
            else:
                self._unbelieving.discard(owner.address)
                return answer

    @contextmanager
    def _counted(self, person: str) -> Iterator[None]:
        if self._under_way[person] >= self._most_each:
            raise HopError(429, "too_many_requests", "Too many requests of yours are being answered already.")
        if self._under_way.total() >= self._most:
            raise HopError(503, "busy", "This bridge passes on as much as it can. Try again in a moment.")
        self._under_way[person] += 1
        try:
            yield
        finally:
            self._under_way[person] -= 1
            if not self._under_way[person]:
                del self._under_way[person]

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None or self._is_ending:
            raise HopError(503, "stopping", "The bridge is stopping.")
        return self._session

    def _headers(self, request: web.Request, hop: Hop, client: str) -> CIMultiDict[str]:
        headers = _passed(request.headers, _DROPPED)
        if _asks_for_socket(request):
            headers.extend(_handshake(request.headers))
        if any(value.strip().lower() in _UNDONE for value in headers.getall(hdrs.CONTENT_ENCODING, ())):
            headers.popall(hdrs.CONTENT_ENCODING)
            headers.popall(hdrs.CONTENT_LENGTH, None)
        if hop.passed.by == "operator":
            # The control socket's host name means nothing on other machines.
            headers.popall(hdrs.HOST, None)
        if sum(len(name) + len(value) for name, value in headers.items()) > MAX_HEAD_BYTES:
            raise HopError(431, "head_too_large", f"A request's head may have up to {MAX_HEAD_BYTES >> 10} KiB.")
        headers[hdrs.X_FORWARDED_FOR] = client
        return headers

    def _signed(self, target: str, hop: Hop) -> aiohttp.ClientMiddlewareType:
        """Return a middleware that signs each attempt, because aiohttp retries requests on broken connections."""
        seal = self._seal
        if seal is None:
            raise HopError(
                503,
                "unavailable",
                "Another bridge has your agent at the moment, and this one may not pass you on: whoever runs them has "
                "to set BRIDGE_CLUSTER_SECRET, the same for each.",
            )

        async def sign(request: aiohttp.ClientRequest, send: _Send) -> aiohttp.ClientResponse:
            request.headers.update(seal.headers(request.method, target, hop))
            return await send(request)

        return sign

    async def _answer(self, exchange: Exchange, url: URL, headers: CIMultiDict[str], hop: Hop) -> web.StreamResponse:
        request = exchange.request
        has_body = request.can_read_body
        async with self._opened().request(
            request.method,
            url,
            headers=headers,
            data=exchange.body() if has_body else None,
            expect100=has_body,
            allow_redirects=False,
            middlewares=(self._signed(target_of(request), hop),),
        ) as answer:
            _look_at(answer.headers)
            response = web.StreamResponse(
                status=answer.status, reason=answer.reason, headers=_passed(answer.headers, _DROPPED | _OWN)
            )
            if answer.status == HTTPStatus.SWITCHING_PROTOCOLS:
                await self._pass_socket(exchange, answer, response)
                return response
            await exchange.begin(response)
            if request.method != hdrs.METH_HEAD and answer.status not in _NO_BODY:
                async for chunk in answer.content.iter_any():
                    await exchange.write(chunk)
            await exchange.finish()
        return response

    async def _pass_socket(
        self, exchange: Exchange, answer: aiohttp.ClientResponse, response: web.StreamResponse
    ) -> None:
        response.headers.extend(_handshake(answer.headers))
        response.force_close()
        await exchange.begin(response)
        socket = exchange.pass_socket(
            answer, max_message_bytes=self._max_message_bytes, stall_seconds=self._stall_seconds
        )
        self._sockets.add(socket)
        try:
            if self._is_ending:
                await socket.close(WSCloseCode.GOING_AWAY, _STOPPING)
            await socket.over()
        finally:
            self._sockets.discard(socket)


class _Complaints:
    """Rate limit for log messages about a person's owner."""

    def __init__(self) -> None:
        #: The oldest first.
        self._said: OrderedDict[str, tuple[Owner, float]] = OrderedDict()

    def level(self, person: str, owner: Owner) -> int:
        """Return the log level for an unanswered request: WARNING, or DEBUG if the same was logged within a minute."""
        now = time.monotonic()
        before = self._said.get(person)
        if before is not None and before[0] == owner and now - before[1] < _AGAIN_SECONDS:
            return logging.DEBUG
        self._said[person] = owner, now
        self._said.move_to_end(person)
        if len(self._said) > _MOST_REMEMBERED:
            self._said.popitem(last=False)
        return logging.WARNING


def _look_at(headers: Mapping[str, str]) -> None:
    """Raise if the answer is the other bridge's refusal to accept a forwarded request."""
    reason = headers.get(ANSWER)
    if reason == "not-owner":
        raise LookAgainError(503, "unavailable", f"No bridge has your agent for the moment. {UNREAD}")
    if reason is not None:
        raise HopError(502, _NOT_BELIEVED, _REASONS.get(reason, _REASONS["unsigned"]))


def _asks_for_socket(request: web.Request) -> bool:
    return web.WebSocketResponse().can_prepare(request).ok


def _handshake(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the handshake headers of one side, for the other side."""
    said = [(name, value) for name, value in headers.items() if name.lower().startswith(_HANDSHAKE)]
    return [(hdrs.CONNECTION, "Upgrade"), (hdrs.UPGRADE, "websocket"), *said]


def _passed(headers: Mapping[str, str], dropped: frozenset[str]) -> CIMultiDict[str]:
    """Return the headers to forward, without those of one connection and those reserved for bridges."""
    named = {name.strip().lower() for name in headers.get(hdrs.CONNECTION, "").split(",")}
    kept: CIMultiDict[str] = CIMultiDict()
    for name, value in headers.items():
        lower = name.lower()
        if lower not in dropped and lower not in named and not lower.startswith(_NEVER_PASSED):
            kept.add(name, value)
    return kept
