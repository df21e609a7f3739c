"""`/mcp`: MCP over streamable HTTP, for programs with a person's token. The tools are in sprite/mcp.

There are no sessions: the token authorizes each request, at any bridge. A request is cancelled by closing its
connection.
"""

import asyncio
import logging
import uuid
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, MutableMapping
from contextlib import AsyncExitStack
from typing import Any, Final

import msgspec
from aiohttp import hdrs, web
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

from bridge.api.bodies import UnreadableError, decoded
from bridge.api.missions import AskError, Asking
from bridge.auth.admission import Admission, DoorError
from bridge.auth.login import Authenticator
from bridge.auth.tokens import SCOPES, Holder
from bridge.http.messages import body_within
from bridge.hub.hub import Relay
from bridge.hub.link import LinkDownError
from sprite.common.tasks import Service, TaskSet, off_loop
from sprite.mcp.server import Caller, Context, offering
from sprite.mcp.shapes import Reply
from sprite.mcp.tools import Told, Tool, progress, reply_of
from sprite.protocol.events import Ending
from sprite.protocol.frames import PeerError
from sprite.protocol.memory import ActionsRequest, AddActionRequest, MemoryRequest, MemoryResult
from sprite.protocol.messages import PROTOCOL_VERSION, ClientPayload, Error, ServerPayload

log = logging.getLogger(__name__)

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[MutableMapping[str, Any], Receive, Send], Coroutine[Any, Any, None]]

#: A client that reads nothing for this long is disconnected, because its answer waits in memory.
STALLED_SECONDS = 30.0
#: Time for an application to end after its client disconnected.
_FAREWELL_SECONDS = 5.0
#: Headers that aiohttp sets itself for the connection.
_HOP_BY_HOP = frozenset({"connection", "date", "keep-alive", "server", "transfer-encoding"})


async def served_by(
    application: Application,
    request: web.Request,
    extra: Mapping[str, Any] | None = None,
    *,
    body: bytes | None = None,
    stalled_seconds: float = STALLED_SECONDS,
) -> web.StreamResponse:
    """Run the application and return its answer, which is already sent. `extra` is merged into the scope.

    `body` is the request's body if it was read before. The handler of a disconnected client is cancelled; the
    application then gets `http.disconnect` and ends in order, because started work must complete. Raises
    ConnectionResetError if the client stopped reading or the answer is incomplete.
    """
    exchange = _Exchange(request, stalled_seconds, body)
    work = application({**_scope(request), **(extra or {})}, exchange.receive, exchange.send)
    task = asyncio.create_task(work, name="asgi application")
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        exchange.disconnect()
        await _ended(task)
        # Last, because the end of the connection cancels this handler again.
        exchange.cut()
        raise
    return exchange.finished()


async def _ended(task: asyncio.Task[None]) -> None:
    """Wait for an application whose client disconnected, then cancel it."""
    try:
        await asyncio.wait({task}, timeout=_FAREWELL_SECONDS)
    finally:
        task.cancel()
    await asyncio.wait({task})
    if not task.cancelled() and (error := task.exception()) is not None:
        log.debug("an application failed after its client had gone", exc_info=error)


def _scope(request: web.Request) -> dict[str, Any]:
    host, port = request.url.host or "", request.url.port
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.4"},
        "http_version": f"{request.version.major}.{request.version.minor}",
        "method": request.method,
        "scheme": request.scheme,
        "path": request.path,
        "raw_path": request.raw_path.partition("?")[0].encode(),
        "query_string": request.query_string.encode(),
        "root_path": "",
        "headers": [(name.lower(), value) for name, value in request.raw_headers],
        "client": (request.remote, 0) if request.remote else None,
        "server": (host, port),
        "state": {},
    }


class _Exchange:
    """One HTTP request and its answer, as the `receive` and `send` of an ASGI application."""

    def __init__(self, request: web.Request, stalled_seconds: float, body: bytes | None) -> None:
        self._request = request
        self._body = body
        self._stalled_seconds = stalled_seconds
        self._has_read_all = False
        self._has_gone = asyncio.Event()
        self._response: web.StreamResponse | None = None
        self._is_sent = False

    async def receive(self) -> Message:
        """Return the next part of the body; after the last one, wait until the client has disconnected."""
        if self._has_read_all or self._has_gone.is_set():
            await self._has_gone.wait()
            return {"type": "http.disconnect"}
        if self._body is not None:
            self._has_read_all = True
            return {"type": "http.request", "body": self._body, "more_body": False}
        chunk = await self._request.content.readany()
        self._has_read_all = self._request.content.at_eof()
        return {"type": "http.request", "body": chunk, "more_body": not self._has_read_all}

    async def send(self, message: Message) -> None:
        """Send a part of the answer before returning. Does nothing once the client has disconnected."""
        if self._has_gone.is_set():
            return
        if message["type"] == "http.response.start":
            self._response = web.StreamResponse(status=message["status"])
            for name, value in message.get("headers", ()):
                if (text := name.decode("latin-1")).lower() not in _HOP_BY_HOP:
                    self._response.headers.add(text, value.decode("latin-1"))
        elif message["type"] == "http.response.body":
            await self._send_body(message.get("body", b""), more=message.get("more_body", False))

    async def _send_body(self, body: bytes, *, more: bool) -> None:
        response = self._response
        if response is None:
            raise RuntimeError("the application sent a body before it began to answer")
        if not response.prepared and not more and hdrs.CONTENT_LENGTH not in response.headers:
            response.content_length = len(body)
        try:
            async with asyncio.timeout(self._stalled_seconds):
                if not response.prepared:
                    await response.prepare(self._request)
                if body and self._request.method != "HEAD":
                    await response.write(body)
                if not more:
                    await response.write_eof()
                    self._is_sent = True
        except (TimeoutError, ConnectionError):
            self.disconnect()
            self.cut()

    def disconnect(self) -> None:
        """Note that the client has disconnected."""
        self._has_gone.set()

    def cut(self) -> None:
        """Cut off an answer that has begun, because it cannot be replaced."""
        if self._response is not None and self._request.transport is not None:
            self._request.transport.abort()

    def finished(self) -> web.StreamResponse:
        """Return the answer. Raises ConnectionResetError if it is incomplete, RuntimeError if there is none."""
        if self._has_gone.is_set():
            raise ConnectionResetError("the client has gone")
        if self._response is None:
            raise RuntimeError("the application sent no answer")
        if not self._is_sent:
            raise ConnectionResetError("the application ended before its answer was complete")
        return self._response


#: Limit for an answer: a sleeping sprite has to wake, and clients wait for a minute.
_ANSWER_SECONDS = 50.0
#: Buffered progress messages; a slow client gets the newest.
_UNTOLD = 20
_AWAY = "The person's agent cannot be reached at the moment. Nothing is lost; try again in a while."


class RelayedSource:
    """One person's memory, reached through the relay; `asked_by` names the program that asks."""

    def __init__(self, relay: Relay, asking: Asking, person: str, asked_by: str) -> None:
        self._relay = relay
        self._asking = asking
        self._person = person
        self._asked_by = asked_by

    async def answer(self, request: MemoryRequest) -> MemoryResult:
        """Send a memory request to the sprite and return its result. Raises PeerError."""
        if isinstance(request, AddActionRequest):
            # Requests are repeated after a lost link, which could add the action twice. This request makes sure that
            # the link is up.
            await self._ask(ActionsRequest())
        answer = await self._ask(request)
        if not isinstance(answer, MemoryResult):
            raise PeerError("The sprite's answer is invalid. Update the bridge and the sprite.", code="unexpected")
        return answer

    async def mission(self, text: str, told: Told) -> Reply:
        """Send a mission to the sprite and return the reply; `told` receives its progress."""
        mission_id = str(uuid.uuid4())
        untold = deque[str](maxlen=_UNTOLD)
        ending: Ending | None = None

        def hear(payload: ServerPayload) -> None:
            is_its = getattr(payload, "mission_id", None) == mission_id
            if is_its and (words := progress(payload)) is not None:
                untold.append(words)

        asked = self._asking.asked(self._person, text, mission_id, asked_by=self._asked_by, watch=hear)
        try:
            async with asked as changes:
                async for turn in changes:
                    while untold:
                        await told(untold.popleft())
                    if turn is not None:
                        ending = turn.ending
        except AskError as error:
            raise PeerError(str(error), code=error.code) from error
        if ending is None:
            raise PeerError(_AWAY, code="unavailable")
        return reply_of(ending, mission_id)

    async def _ask(self, payload: ClientPayload) -> ServerPayload:
        """Return the sprite's answer. Raises PeerError if it refuses or is unreachable."""
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                with self._relay.held(self._person) as room:
                    answer = await room.ask(payload)
        except (TimeoutError, LinkDownError) as error:
            raise PeerError(_AWAY, code="unavailable") from error
        if isinstance(answer, Error):
            raise PeerError(answer.message, code=answer.code)
        return answer


#: Fits the longest mission, with any escaping.
_MAX_BODY_BYTES = 2 * 2**20
#: Members of all objects and lists together; no tool takes that many.
_MOST_MEMBERS = 2000
_MOST_BRACKETS, _MOST_COMMAS = 50_000, 200_000
_CALLER: Final = "sprite.caller"


class McpDoor(Service):
    """Serve the MCP endpoint: `async with McpDoor(...) as door:`.

    `metadata_url` returns, for a host, the URL that tells clients how to get access.
    """

    def __init__(
        self,
        admission: Admission,
        authenticator: Authenticator,
        relay: Relay,
        metadata_url: Callable[[str], str | None],
    ) -> None:
        self._admission = admission
        self._authenticator = authenticator
        self._relay = relay
        self._metadata_url = metadata_url
        server = offering("sprite", str(PROTOCOL_VERSION), _caller, lacking=_lacking)
        # The security middleware and `answer` check Host and Origin.
        self._manager = StreamableHTTPSessionManager(server, stateless=True, max_request_body_size=_MAX_BODY_BYTES)
        self._serving: set[asyncio.Task[Any]] = set()
        self._tasks = TaskSet()
        self._asking = Asking(relay)
        self._is_stopping = asyncio.Event()
        self._runs = asyncio.Event()
        #: Whether it stopped serving, which only a bug can cause before its end.
        self.has_died = False

    async def _open(self, stack: AsyncExitStack) -> None:
        await stack.enter_async_context(self._asking)
        await stack.enter_async_context(self._tasks)
        stack.callback(self._end_all)
        self._tasks.start(self._run(), "mcp")
        await self._runs.wait()

    def _end_all(self) -> None:
        self._is_stopping.set()
        for task in tuple(self._serving):
            task.cancel()

    async def _run(self) -> None:
        try:
            async with self._manager.run():
                self._runs.set()
                await self._is_stopping.wait()
        finally:
            self.has_died = True
            self._runs.set()

    async def answer(self, request: web.Request) -> web.StreamResponse:
        """Answer a request to /mcp."""
        if "Origin" in request.headers and not self._authenticator.is_same_origin(request):
            return _refusal(403, "forbidden_origin", "Another site may not act for you here.")
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine runs in one
        self._serving.add(task)
        try:
            async with self._admission.entered(request, None) as holder:
                return await self._served(request, holder)
        except DoorError as error:
            return self._not_admitted(request, error)
        finally:
            self._serving.discard(task)

    async def _served(self, request: web.Request, holder: Holder) -> web.StreamResponse:
        if request.method != "POST":
            # No event stream is offered, because it would stay empty.
            return _refusal(405, "refused", "This address accepts only POST.", Allow="POST")
        body = await body_within(request, _MAX_BODY_BYTES)
        if body is None:
            return _refusal(413, "request_too_large", f"A message has up to {_MAX_BODY_BYTES >> 20} MiB.")
        if words := await off_loop(len(body), _unfit, body):
            return _refusal(400, "bad_request", words)
        source = RelayedSource(self._relay, self._asking, holder.person, holder.label)
        caller = Caller(source, frozenset(SCOPES if holder.scopes is None else holder.scopes))
        return await served_by(self._manager.handle_request, request, {_CALLER: caller}, body=body)

    def _not_admitted(self, request: web.Request, error: DoorError) -> web.Response:
        response = _refusal(error.status, error.code, str(error))
        response.headers.update(error.headers())
        if error.status == 401:  # noqa: PLR2004 - unauthorized
            parts = ['error="invalid_token"'] if "Authorization" in request.headers else []
            if (url := self._metadata_url(request.host)) is not None:
                parts.append(f'resource_metadata="{url}"')
            response.headers["WWW-Authenticate"] = f"Bearer {', '.join(parts)}".strip()
        return response


def _caller(ctx: Context) -> Caller:
    """Return the caller that the endpoint put into the request's ASGI scope."""
    asked: Any = ctx.request
    caller: Caller = asked.scope[_CALLER]
    return caller


def _lacking(tool: Tool) -> str:
    return (
        f"This token may not use {tool.name}: it lacks the scope {tool.scope}. Whoever runs the bridge "
        f"can make a token with this scope: `python -m bridge users token NAME --scope {tool.scope}`. A "
        "program that a person allowed can request more access."
    )


def _unfit(body: bytes) -> str:
    """Return why an MCP message is refused (nested too deeply, too many members), or "" if it is fine."""
    # Checked before any objects are built. Pasted text has commas and brackets, too, but fewer.
    if body.count(b"[") + body.count(b"{") > _MOST_BRACKETS or body.count(b",") > _MOST_COMMAS:
        return "The message has too many members."
    try:
        waiting = [decoded(body, Any)]
    except UnreadableError as error:
        # Invalid JSON is refused by the protocol's server in the protocol's format.
        return "The message is nested too deeply." if "nested" in str(error) else ""
    except msgspec.ValidationError:
        return "A number of the message is too large."
    members = 0
    while waiting:
        value = waiting.pop()
        inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
        members += len(inner)
        if members > _MOST_MEMBERS:
            return f"The message has more than {_MOST_MEMBERS:,} members."
        waiting.extend(inner)
    return ""


def _refusal(status: int, code: str, words: str, **headers: str) -> web.Response:
    # OAuth's field beside the bridge's own, since clients of both kinds connect.
    body = {"error": {"code": code, "message": words}, "error_description": words}
    return web.json_response(body, status=status, headers={"Cache-Control": "no-store", **headers})
