"""Forward requests to the bridge that owns the sprite: HTTP, streamed both ways, and WebSockets.

Bodies are not buffered: a slow receiver pauses the sender. A request is forwarded at most once, and its body read only
after the other bridge accepted it. A signed header, valid once for 30 seconds, replaces the person's cookie or token,
which never travels between bridges.
"""

import asyncio
import base64
import hmac
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, Literal, NoReturn

import aiohttp
import msgspec
from aiohttp import WSCloseCode, WSMsgType, hdrs, web
from multidict import CIMultiDict
from yarl import URL

from bridge.cluster.ownership import Owner
from sprite.common.tasks import Service, TaskSet

#: Prefix of headers reserved for bridges. From other clients they are neither trusted nor forwarded.
PREFIX: Final = "X-Bridge-"
HOP: Final = "X-Bridge-Hop"
#: In an answer: the other bridge itself refuses, with the reason. Other errors come from the endpoint.
ANSWER: Final = "X-Bridge-Answer"
_SIGNED: Final = "X-Bridge-Signature"
#: Allowed difference between two bridges' clocks.
CLOCK_SECONDS: Final = 30.0
#: Remembered signatures: far more than the requests a bridge can answer in a minute.
_MOST_REMEMBERED = 200_000
_KEY_CONTEXT = b"sprite: one bridge passes a request on to another"

Refusal = Literal["not-owner", "unsigned", "late", "replayed"]


@dataclass(frozen=True, slots=True)
class ForwardedIdentity:
    """The person of a request and the credential they used.

    `way_in` is the hash of a session or token, in hex. Its revocation ends the request. It is None for the control
    socket. `scopes` is None for a full token, and for sessions and operators.
    """

    person: str
    by: Literal["session", "token", "operator"]
    way_in: str | None
    label: str = ""
    scopes: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class ForwardHeader:
    """Verified facts about a forwarded request: its person and credential, the expected epoch and the request id."""

    passed: ForwardedIdentity
    epoch: int
    request_id: str


#: Set on a verified request from another bridge.
PASSED: Final = web.RequestKey("passed", ForwardedIdentity)


class HopRefusedError(Exception):
    """A forwarded request failed verification; `reason` is for the other bridge."""

    def __init__(self, reason: Refusal) -> None:
        super().__init__(reason)
        self.reason: Refusal = reason


class RequestSigner:
    """Sign forwarded requests and verify those of other bridges. `clock` returns Unix seconds."""

    def __init__(self, secret: str, clock: Callable[[], float] = time.time) -> None:
        self._key = hmac.digest(secret.encode("utf-8", "surrogateescape"), _KEY_CONTEXT, "sha256")
        self._clock = clock
        #: Accepted signatures with the time until which a replay would be valid, oldest first.
        self._seen: OrderedDict[str, float] = OrderedDict()

    def headers(self, method: str, target: str, hop: ForwardHeader) -> dict[str, str]:
        """Return the signed headers of a request; `target` is its path and query as sent."""
        claims = base64.urlsafe_b64encode(msgspec.json.encode((self._clock(), hop))).decode()
        return {HOP: "1", _SIGNED: f"{claims}.{self._signature(method, target, claims)}"}

    def opened(self, method: str, target: str, headers: Mapping[str, str]) -> ForwardHeader:
        """Return the facts of a forwarded request. Raise HopRefusedError if it is unsigned, late or repeated."""
        claims, _, given = headers.get(_SIGNED, "").rpartition(".")
        signature = self._signature(method, target, claims)
        is_right = hmac.compare_digest(given.encode("utf-8", "surrogateescape"), signature.encode())
        if headers.get(HOP) != "1" or not is_right:
            raise HopRefusedError("unsigned")
        # The signature is valid, so the claims come from a bridge.
        signed_at, hop = msgspec.json.decode(base64.urlsafe_b64decode(claims), type=tuple[float, ForwardHeader])
        now = self._clock()
        if not abs(now - signed_at) <= CLOCK_SECONDS:
            raise HopRefusedError("late")
        self._once(signature, now)
        return hop

    def _once(self, signature: str, now: float) -> None:
        # Twice the limit, because a clock that runs ahead keeps a signature valid for longer.
        while self._seen and next(iter(self._seen.values())) < now:
            self._seen.popitem(last=False)
        if signature in self._seen or len(self._seen) >= _MOST_REMEMBERED:
            raise HopRefusedError("replayed")
        self._seen[signature] = now + 2 * CLOCK_SECONDS

    def _signature(self, method: str, target: str, claims: str) -> str:
        # None of the three has a space.
        message = f"{method} {target} {claims}".encode("utf-8", "surrogateescape")
        return hmac.digest(self._key, message, "sha256").hex()


def target_of(request: web.Request) -> str:
    """Return the path and query as signed and sent. A host in the request line is ignored."""
    return request.rel_url.raw_path_qs


log = logging.getLogger(__name__)

#: Concurrent forwarded requests of one person: the sum of the limits per endpoint.
MOST_EACH = 96
#: Limit for the head of a request.
MAX_HEAD_BYTES = 32 * 1024
_CONNECT_SECONDS = 3.0
#: Shorter than a bridge keeps an idle connection.
_IDLE_SECONDS = 15.0
_CLOSE_SECONDS = 5.0
#: A side of a WebSocket that takes nothing for this long is disconnected.
_STALL_SECONDS = 60.0
#: Headers of a single connection, or credentials, which the signature replaces.
_DROPPED: Final = frozenset(
    "connection keep-alive proxy-connection proxy-authenticate proxy-authorization te trailer transfer-encoding "
    "upgrade expect authorization cookie forwarded".split()
)
#: Set by this bridge itself. The other bridge uses the same request id.
_OWN: Final = frozenset({"date", "server", "x-request-id"})
_NEVER_PASSED: Final = (PREFIX.lower(), "x-forwarded-", "sec-websocket-")
_NO_BODY: Final = frozenset({204, 304})
#: Content encodings that the server has already decoded, so the body's length differs.
_UNDONE: Final = frozenset({"gzip", "deflate", "br", "zstd"})
_FRAMES: Final = frozenset({WSMsgType.TEXT, WSMsgType.BINARY, WSMsgType.PING, WSMsgType.PONG})
_GONE: Final = "The bridge that has your agent does not answer."
_UNREAD: Final = "Try again in a few seconds: another bridge takes over."
_UNSURE: Final = "What you sent may have arrived all the same."
_REASONS: Final = {
    "unsigned": "The bridge that has your agent does not trust this one: whoever runs the bridges must set "
    "the same BRIDGE_CLUSTER_SECRET on each.",
    "late": "The clocks of two bridges differ too much: whoever runs the bridges must set them right.",
    "replayed": "The bridge that has your agent has already received this request.",
}


BEAT_SECONDS = 2.0
#: Probes that the other bridge may miss.
_MISSED = 3


class Pulses:
    """Probe other bridges during forwarded requests: `async with pulses.felt(address):`. `session` sends the probes."""

    def __init__(self, session: aiohttp.ClientSession, tasks: TaskSet, beat_seconds: float) -> None:
        self._session = session
        self._tasks = tasks
        self._beat_seconds = beat_seconds
        #: The blocks that wait for each bridge.
        self._waiting: dict[str, set[asyncio.Timeout]] = {}

    @asynccontextmanager
    async def felt(self, address: str) -> AsyncIterator[None]:
        """Run the block while the bridge at `address` answers probes. Raises TimeoutError after that."""
        if address not in self._waiting:
            self._tasks.start(self._beat(address), "pulse")
        waiting = self._waiting.setdefault(address, set())
        async with asyncio.timeout(None) as until:
            waiting.add(until)
            try:
                yield
            finally:
                waiting.discard(until)

    async def _beat(self, address: str) -> None:
        missed = 0
        try:
            while waiting := self._waiting[address]:
                began = asyncio.get_running_loop().time()
                missed = 0 if await self._lives(address) else missed + 1
                if missed == _MISSED:
                    missed = 0
                    for until in waiting:
                        until.reschedule(began)
                left = began + self._beat_seconds - asyncio.get_running_loop().time()
                await asyncio.sleep(max(0.0, left))
        finally:
            del self._waiting[address]

    async def _lives(self, address: str) -> bool:
        with suppress(aiohttp.ClientError, OSError):
            async with (
                asyncio.timeout(self._beat_seconds),
                self._session.get(f"{address}/healthz", allow_redirects=False),
            ):
                # Any answer counts.
                return True
        return False


class HopError(Exception):
    """The request cannot be forwarded or got no answer. `status` is the HTTP status, `code` a code for programs."""

    def __init__(self, status: int, code: str, words: str) -> None:
        super().__init__(words)
        self.status = status
        self.code = code


class LookAgainError(HopError):
    """The other bridge does not own the sprite, or is down. The request's body was not read, so a retry is safe."""


class _NoSocketError(Exception):
    """The owner answered a WebSocket's handshake with another response."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        super().__init__(answer.status)
        self.answer = answer


class Hops(Service):
    """Forward requests to other bridges; without a `seal`, none: `async with Hops(seal, ...) as hops:`."""

    def __init__(
        self,
        seal: RequestSigner | None,
        *,
        max_message_bytes: int,
        most_each: int = MOST_EACH,
        beat_seconds: float = BEAT_SECONDS,
        stall_seconds: float = _STALL_SECONDS,
    ) -> None:
        self._seal = seal
        self._max_message_bytes = max_message_bytes
        self._most_each = most_each
        self._beat_seconds = beat_seconds
        self._stall_seconds = stall_seconds
        self._under_way: Counter[str] = Counter()
        #: Handlers of forwarded WebSockets.
        self._sockets: set[asyncio.Task[Any]] = set()
        #: The last owner of each person's sprite that gave no answer, so that the log reports it once.
        self._silent: dict[str, Owner] = {}

    async def _open(self, stack: AsyncExitStack) -> None:
        self._stopping = asyncio.get_running_loop().create_future()
        self._connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE_SECONDS)
        stack.push_async_callback(self._connector.close)
        session = await stack.enter_async_context(self._session())
        self._pulses = Pulses(session, await stack.enter_async_context(TaskSet()), self._beat_seconds)
        stack.push_async_callback(self.end_all)

    async def end_all(self) -> None:
        """Close forwarded WebSockets because the bridge stops. No new request is forwarded after that."""
        if not self._stopping.done():
            self._stopping.set_result(None)
        if self._sockets:
            await asyncio.wait(self._sockets)

    def under_way(self) -> dict[str, float]:
        """Return the number of forwarded requests by person."""
        return dict(+self._under_way)

    async def passed_on(
        self, request: web.Request, owner: Owner, hop: ForwardHeader, client: str
    ) -> web.StreamResponse:
        """Forward a request to `owner` and return its answer. `hop` is sent signed; `client` is the client's address.

        Raises LookAgainError if that bridge does not own the sprite, HopError if there is no answer, and
        ConnectionResetError if the answer broke off.
        """
        person = hop.passed.person
        if self._stopping.done():
            raise HopError(503, "stopping", "The bridge is stopping.")
        if self._under_way[person] >= self._most_each:
            raise HopError(
                429, "too_many_requests", "Too many of your requests are in progress. Try again when one has ended."
            )
        headers = _headers(request, hop, client)
        passing = _Passing(request)
        self._under_way[person] += 1
        try:
            async with self._session(self._signed(request, hop)) as session:
                response = await self._answered(passing, session, owner, headers)
        except (aiohttp.ClientError, OSError) as error:
            if request.transport is None or request.transport.is_closing():
                raise ConnectionResetError("the client has gone") from error
            if isinstance(refused := request.content.exception(), web.HTTPException):
                # The client's body did not arrive.
                raise refused from error
            # After each change of owner, everyone who opens the sprite runs into this.
            level = logging.DEBUG if self._silent.get(person) == owner else logging.WARNING
            self._silent[person] = owner
            extra = {"person": person, "request_id": hop.request_id}
            log.log(level, "a bridge that has a sprite did not answer (%s)", type(error).__name__, extra=extra)
            await passing.break_off(error)
        else:
            self._silent.pop(person, None)
            return response
        finally:
            self._under_way[person] -= 1

    def _session(self, *middlewares: aiohttp.ClientMiddlewareType) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=self._connector,
            connector_owner=False,
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS),
            skip_auto_headers=(hdrs.USER_AGENT, hdrs.ACCEPT, hdrs.ACCEPT_ENCODING, hdrs.CONTENT_TYPE),
            auto_decompress=False,
            middlewares=middlewares,
        )

    def _signed(self, request: web.Request, hop: ForwardHeader) -> aiohttp.ClientMiddlewareType:
        """Return a middleware that signs each attempt, because aiohttp retries requests on broken connections."""
        seal = self._seal
        if seal is None:
            raise HopError(
                503,
                "unavailable",
                "Another bridge has your agent at the moment, and this one cannot forward you to it: whoever "
                "runs the bridges must set the same BRIDGE_CLUSTER_SECRET on each.",
            )

        async def sign(asked: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
            asked.headers.update(seal.headers(asked.method, target_of(request), hop))
            answer = await send(asked)
            if (reason := answer.headers.get(ANSWER)) is not None:
                answer.close()
                if reason == "not-owner":
                    raise LookAgainError(503, "unavailable", f"No bridge has your agent at the moment. {_UNREAD}")
                log.warning("a bridge refuses requests of this one (%s)", reason)
                raise HopError(502, "not_believed", _REASONS.get(reason, _REASONS["unsigned"]))
            if hdrs.UPGRADE in asked.headers and answer.status != HTTPStatus.SWITCHING_PROTOCOLS:
                raise _NoSocketError(answer)
            return answer

        return sign

    async def _answered(
        self, passing: "_Passing", session: aiohttp.ClientSession, owner: Owner, headers: CIMultiDict[str]
    ) -> web.StreamResponse:
        request = passing.request
        url = URL(f"{owner.address}{target_of(request)}", encoded=True)
        async with self._pulses.felt(owner.address):
            if not web.WebSocketResponse().can_prepare(request):
                has_body = request.can_read_body
                data = passing.body() if has_body else None
                answer = await session.request(
                    request.method, url, headers=headers, data=data, expect100=has_body, allow_redirects=False
                )
                return await passing.copy(answer)
            try:
                socket = await session.ws_connect(
                    url, headers=headers, autoclose=False, autoping=False, max_msg_size=0, decode_text=False
                )
            except _NoSocketError as refused:
                return await passing.copy(refused.answer)
        async with socket:
            return await self._pass_frames(request, socket, owner)

    async def _pass_frames(
        self, request: web.Request, owners: aiohttp.ClientWebSocketResponse[bool], owner: Owner
    ) -> web.StreamResponse:
        """Forward a WebSocket's frames in both directions until one side closes it, with the same code."""
        clients = web.WebSocketResponse(
            autoclose=False, autoping=False, compress=False, max_msg_size=self._max_message_bytes, decode_text=False
        )
        await clients.prepare(request)
        transport, handler = request.transport, asyncio.current_task()
        assert handler is not None  # noqa: S101 - this is one
        code, reason = int(WSCloseCode.GOING_AWAY), "The bridge that has this sprite is gone; reconnect."
        self._sockets.add(handler)
        try:
            async with TaskSet() as tasks:
                pumps = [
                    tasks.start(_pump(source, target, self._stall_seconds), "forwarded frames")
                    for source, target in ((clients, owners), (owners, clients))
                ]
                with suppress(TimeoutError):
                    async with self._pulses.felt(owner.address):
                        await asyncio.wait({*pumps, self._stopping}, return_when=asyncio.FIRST_COMPLETED)
                if self._stopping.done():
                    reason = "the bridge stops"
                code, reason = next((end for pump in pumps if pump.done() and (end := pump.result())), (code, reason))
        finally:
            words = reason.encode()
            with suppress(TimeoutError):
                async with asyncio.timeout(min(_CLOSE_SECONDS, self._stall_seconds)):
                    await asyncio.gather(
                        clients.close(code=code, message=words, drain=False), owners.close(code=code, message=words)
                    )
            if transport is not None:
                # A client that reads nothing would keep the connection open.
                asyncio.get_running_loop().call_later(_CLOSE_SECONDS, transport.abort)
            self._sockets.discard(handler)
        return clients


async def _pump(source: Any, target: Any, stall_seconds: float) -> tuple[int, str] | None:
    """Forward frames. Return a close frame's code and reason, or None if a side was lost or accepted nothing."""
    with suppress(ConnectionError, TimeoutError):
        while (message := await source.receive()).type in _FRAMES:
            async with asyncio.timeout(stall_seconds):
                await target.send_frame(message.data, message.type)
        if message.type is WSMsgType.CLOSE:
            return message.data or WSCloseCode.OK, message.extra or ""
    return None


class _Passing:
    """One forwarded request and the state of the answer to its client."""

    def __init__(self, request: web.Request) -> None:
        self.request = request
        self._has_read = False
        self._response: web.StreamResponse | None = None

    async def body(self) -> AsyncIterator[bytes]:
        """Yield the client's body as it arrives."""
        self._has_read = True
        async for chunk in self.request.content.iter_any():
            yield chunk

    async def copy(self, answer: aiohttp.ClientResponse) -> web.StreamResponse:
        """Forward the owner's answer to the client."""
        async with answer:
            response = web.StreamResponse(
                status=answer.status, reason=answer.reason, headers=_passed(answer.headers, _DROPPED | _OWN)
            )
            self._response = response
            await response.prepare(self.request)
            if self.request.method != hdrs.METH_HEAD and answer.status not in _NO_BODY:
                async for chunk in answer.content.iter_any():
                    await response.write(chunk)
            await response.write_eof()
            return response

    async def break_off(self, error: Exception) -> NoReturn:
        """Raise HopError if no answer has begun, else ConnectionResetError: a cut answer must not look complete."""
        if self._response is None:
            kind = HopError if self._has_read else LookAgainError
            raise kind(503, "unavailable", f"{_GONE} {_UNSURE if self._has_read else _UNREAD}") from error
        if self._response.content_type == "text/event-stream":
            # A separate line, wherever the other bridge broke off; event stream readers take it for an event.
            words = msgspec.json.encode({"error": {"message": _GONE, "type": "server_error", "code": "unavailable"}})
            await self._response.write(b"\n\ndata: " + words + b"\n\n")
        raise ConnectionResetError(_GONE) from error


def _headers(request: web.Request, hop: ForwardHeader, client: str) -> CIMultiDict[str]:
    headers = _passed(request.headers, _DROPPED)
    if any(value.strip().lower() in _UNDONE for value in headers.getall(hdrs.CONTENT_ENCODING, ())):
        headers.popall(hdrs.CONTENT_ENCODING)
        headers.popall(hdrs.CONTENT_LENGTH, None)
    if hop.passed.by == "operator":
        # The control socket's host name means nothing on other machines.
        headers.popall(hdrs.HOST, None)
    if sum(len(name) + len(value) for name, value in headers.items()) > MAX_HEAD_BYTES:
        raise HopError(431, "head_too_large", f"The headers of a request may have up to {MAX_HEAD_BYTES >> 10} KiB.")
    headers[hdrs.X_FORWARDED_FOR] = client
    return headers


def _passed(headers: Mapping[str, str], dropped: frozenset[str]) -> CIMultiDict[str]:
    """Return the headers to forward, without those of one connection and those reserved for bridges."""
    named = {name.strip().lower() for name in headers.get(hdrs.CONNECTION, "").split(",")}
    kept: CIMultiDict[str] = CIMultiDict()
    for name, value in headers.items():
        lower = name.lower()
        if lower not in dropped and lower not in named and not lower.startswith(_NEVER_PASSED):
            kept.add(name, value)
    return kept
