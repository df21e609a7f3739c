"""One open session with an MCP server, within limits; imported at a first use: the `mcp` package takes a second."""

import asyncio
import ipaddress
import json
import logging
import os
import re
import signal
import socket
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
import httpx2
import mcp_types as types
from mcp import Client, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage

from bridge.connections.store import ConnectionsError, Definition, Tool
from bridge.providers.child import passed_on
from sprite import __version__
from sprite.common.addresses import is_public
from sprite.common.tasks import TaskSet, to_its_end

MOST_TOOLS = 200
MOST_DESCRIPTION_CHARS = 4000
MOST_SCHEMA_CHARS = 8000
MOST_RESULT_CHARS = 40_000
#: Limits for one answer, and for what a local server writes between two requests.
MOST_ANSWER_BYTES = 4 * 2**20
_MOST_MESSAGES = 1000
_MOST_PAGES = 20
OPEN_SECONDS = 30.0
_CALL_SECONDS = 60.0
_CLOSE_SECONDS = 2.0
#: After this time without a call, a session is left.
_IDLE_SECONDS = 600.0
_NAMES_SECONDS = 60.0
_LAST_WORDS_SECONDS = 0.5
_MOST_WORDS = 300
_TOOL_NAME = re.compile(r"[A-Za-z0-9_./-]{1,128}")
#: The folder from which the sandbox's program imports its package.
_ROOT = Path(__file__).resolve().parents[2]
_BROKEN = frozenset({types.CONNECTION_CLOSED, types.REQUEST_TIMEOUT, types.INVALID_REQUEST, types.INTERNAL_ERROR})
_REFUSED = frozenset({401, 403})

# Their messages contain addresses, and what servers send.
for _name in ("client", "mcp.client", "mcp.shared", "httpx2", "httpcore2"):
    logging.getLogger(_name).setLevel(logging.CRITICAL + 1)


class LoginNeededError(Exception):
    """The person has to log in at the server."""


class Server:
    """A session with one MCP server: `open`, then `list_tools` and `call`; `close` ends the calls in flight.

    A local server does not see the folder `data`. `inside` permits the bridge's network. `auth` adds a login's tokens.
    """

    def __init__(self, definition: Definition, data: Path, *, inside: bool, auth: httpx2.Auth | None = None) -> None:
        self._definition = definition
        self._data = data
        self._outside = _Transport(inside=inside)
        self._auth = auth
        self._opened: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._end = asyncio.Event()
        self._owner = TaskSet()
        self._last_words = ""
        self._used_at = 0.0
        #: Whether the session is of no use any more.
        self.is_broken = False
        #: When the tools were listed (monotonic).
        self.listed_at = 0.0

    async def open(self, seconds: float) -> None:
        """Connect within this time. Raise ConnectionsError."""
        self._owner.start(self._run(), "MCP session")
        try:
            async with asyncio.timeout(seconds):
                await asyncio.shield(self._opened)
        except TimeoutError:
            await self.close()
            raise ConnectionsError("timeout", "The server does not answer.") from None
        except BaseException:
            await self.close()
            raise

    async def close(self) -> None:
        """End the session and its calls."""
        self.is_broken = True
        self._end.set()
        if tasks := set(self._owner):
            await asyncio.wait(tasks, timeout=_CLOSE_SECONDS)
        await self._owner.close()

    async def list_tools(self) -> dict[str, Tool]:
        """Return the server's tools by name, without those that exceed a limit. Raise ConnectionsError."""
        found: dict[str, Tool] = {}

        async def pages(client: Client) -> None:
            cursor: str | None = None
            for _ in range(_MOST_PAGES):
                page = await client.list_tools(cursor=cursor)
                described = (_described(tool, self._definition.without_secrets) for tool in page.tools)
                found.update({tool.name: tool for tool in described if tool is not None})
                if (cursor := page.next_cursor) is None or len(found) >= MOST_TOOLS:
                    return

        await self._ask(pages)
        self.listed_at = time.monotonic()
        return dict(list(found.items())[:MOST_TOOLS])

    async def call(self, tool: str, arguments: dict[str, Any]) -> tuple[str, bool]:
        """Return a tool's result as text, and whether it is an error. Raise ConnectionsError."""

        async def called(client: Client) -> types.CallToolResult | MCPError:
            try:
                return await client.call_tool(tool, arguments)
            except MCPError as error:
                if error.code in _BROKEN or self._outside.status in _REFUSED:
                    raise
                return error

        result = await self._ask(called)
        if isinstance(result, MCPError):
            return self._cleaned(result.message), True
        return self._cleaned(_text_of(result)), bool(result.is_error)

    def _cleaned(self, text: str) -> str:
        text = self._definition.without_secrets(text)
        rest = len(text) - MOST_RESULT_CHARS
        return text if rest <= 0 else f"{text[:MOST_RESULT_CHARS]}\n[{rest:,} more characters were cut]"

    async def _ask(self, work: Callable[[Client], Any]) -> Any:
        self._used_at = time.monotonic()
        try:
            async with asyncio.timeout(_CALL_SECONDS):
                return await work(self._opened.result())
        except Exception as error:  # noqa: BLE001 - explained; its text may hold anything
            self.is_broken = True
            raise self._explained(error) from None

    async def _run(self) -> None:
        try:
            client = Client(
                self._remote() if self._definition.url else self._local(),
                cache=None,
                read_timeout_seconds=_CALL_SECONDS,
                client_info=types.Implementation(name="sprite", version=__version__),
            )
            async with client:
                self._opened.set_result(client)
                self._used_at = time.monotonic()
                while not self._end.is_set() and time.monotonic() - self._used_at < _IDLE_SECONDS:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._end.wait(), _IDLE_SECONDS)
        except Exception as error:  # noqa: BLE001 - explained to whoever waits; its text may hold anything
            if not self._opened.done():
                self._opened.set_exception(self._explained(error))
                # It may have no waiter.
                self._opened.exception()
        finally:
            self.is_broken = True
            if not self._opened.done():
                self._opened.cancel()

    @asynccontextmanager
    async def _remote(self) -> AsyncIterator[Any]:
        token, most = self._definition.token, MOST_ANSWER_BYTES
        http = httpx2.AsyncClient(
            transport=self._outside,
            headers={"Accept-Encoding": "identity", **({"Authorization": f"Bearer {token}"} if token else {})},
            auth=self._auth,
            timeout=httpx2.Timeout(OPEN_SECONDS, read=_CALL_SECONDS),
            trust_env=False,
        )
        streams = streamable_http_client(
            self._definition.url, http_client=http, terminate_on_close=False, max_sse_event_size=most
        )
        async with http, streams as found:
            yield found

    @asynccontextmanager
    async def _local(self) -> AsyncIterator[Any]:
        hosts = [part for host in self._definition.hosts for part in ("--host", host)]
        with tempfile.TemporaryDirectory(prefix="sprite-server-") as folder:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "sprite.sandbox.local_server", folder, *hosts, "--", *self._definition.command),
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                env=passed_on(os.environ)  # noqa: TID251 - what every local process inherits
                | {"SPRITE_DATA": str(self._data), "SERVER_ENVIRONMENT": json.dumps(self._definition.env)},
                cwd=_ROOT,
                start_new_session=True,
                limit=MOST_ANSWER_BYTES,
            )
            to_session, messages = anyio.create_memory_object_stream[SessionMessage | Exception](0)
            from_session, requests = anyio.create_memory_object_stream[SessionMessage](0)
            pipes = _Pipes(process)
            try:
                async with TaskSet() as tasks, to_session, messages, from_session, requests:
                    tasks.start(pipes.read(to_session), "MCP output")
                    tasks.start(pipes.write(requests), "MCP input")
                    errors = tasks.start(pipes.listen(), "MCP errors")
                    try:
                        yield messages, from_session
                    finally:
                        with suppress(ProcessLookupError):
                            os.killpg(process.pid, signal.SIGKILL)
                        await asyncio.wait({errors}, timeout=_LAST_WORDS_SECONDS)
                        self._last_words = pipes.last_words
            finally:
                await to_its_end(pipes.end(), name="MCP end")

    def _explained(self, error: BaseException) -> ConnectionsError:
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, ConnectionsError):
            return error
        if isinstance(error, LoginNeededError) or self._outside.status in _REFUSED:
            return ConnectionsError("login", "The server does not accept the credentials. Log in again.")
        if isinstance(error, TimeoutError | httpx2.TimeoutException):
            return ConnectionsError("timeout", "The server does not answer.")
        words = error.message if isinstance(error, MCPError) else type(error).__name__
        words = self._cleaned(" ".join(f"{words}. {self._last_words}".split()))[:_MOST_WORDS]
        return ConnectionsError("failed", f"The server failed: {words}")


class _Pipes:
    """The pipes of a local server. A server that writes too much between two requests is cut off."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin and process.stdout and process.stderr  # noqa: S101, PT018 - all three are pipes
        self._process = process
        self._input, self._output, self._errors = process.stdin, process.stdout, process.stderr
        self._bytes = self._messages = 0
        self.last_words = ""

    async def read(self, to_session: Any) -> None:
        """Pass the messages of the server to the session until the server ends or exceeds a limit."""
        # At a limit, or where the session is gone.
        with suppress(ValueError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            async with to_session:
                while line := await self._output.readline():
                    self._bytes += len(line)
                    self._messages += 1
                    if self._bytes > MOST_ANSWER_BYTES or self._messages > _MOST_MESSAGES:
                        return
                    with suppress(ValueError):
                        message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
                        await to_session.send(SessionMessage(message))

    async def write(self, requests: Any) -> None:
        """Write the session's requests to the server."""
        with suppress(OSError):
            async for request in requests:
                self._bytes = self._messages = 0
                line = request.message.model_dump_json(by_alias=True, exclude_unset=True)
                self._input.write(line.encode() + b"\n")
                await self._input.drain()

    async def end(self) -> None:
        """Wait some seconds for the end of a killed server. It is noticed only after the remaining output was read."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                while await self._output.read(MOST_ANSWER_BYTES):
                    pass
                await self._process.wait()

    async def listen(self) -> None:
        """Keep the last part of what the server writes to stderr."""
        while data := await self._errors.read(_MOST_WORDS):
            self.last_words = (self.last_words + data.decode(errors="replace"))[-_MOST_WORDS:]


class _Transport(httpx2.AsyncBaseTransport):
    """Send HTTP to the internet (a name is resolved once and checked) or, `inside`, anywhere; answers are bounded."""

    def __init__(self, *, inside: bool) -> None:
        self._inside = inside
        self._inner = httpx2.AsyncHTTPTransport(trust_env=False)
        self._known: dict[tuple[str, int], tuple[str, float]] = {}
        self.status = 0

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """See the base class."""
        if not self._inside:
            request = await self._to_internet(request)
        response = await self._inner.handle_async_request(request)
        self.status = response.status_code
        if response.headers.get("content-encoding", "identity") != "identity":
            await response.aclose()
            raise httpx2.DecodingError("A compressed answer has no bound.", request=request)
        return httpx2.Response(
            response.status_code,
            headers=response.headers,
            stream=_Bounded(response.stream),
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        """See the base class."""
        await self._inner.aclose()

    async def _to_internet(self, request: httpx2.Request) -> httpx2.Request:
        url = request.url
        if url.scheme != "https":
            raise ConnectionsError("invalid", "The server, or its login, has an address without https.")
        host, port = url.host, url.port or 443
        address, until = self._known.get((host, port), ("", 0.0))
        if until < time.monotonic():
            found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
            public = next(filter(is_public, (ipaddress.ip_address(each[4][0]) for each in found)), None)
            if public is None:
                raise ConnectionsError("invalid", "The MCP server's address is not on the public internet.")
            address = str(public) if public.version == 4 else f"[{public}]"  # noqa: PLR2004 - IPv4
            self._known[host, port] = address, time.monotonic() + _NAMES_SECONDS
        extensions = {**request.extensions, "sni_hostname": host}
        place = url.copy_with(host=address)
        return httpx2.Request(
            request.method, place, headers=request.headers, stream=request.stream, extensions=extensions
        )


class _Bounded(httpx2.AsyncByteStream):
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for part in self._stream:
            size += len(part)
            if size > MOST_ANSWER_BYTES:
                raise httpx2.ReadError("The MCP server's answer is too long.")
            yield part

    async def aclose(self) -> None:
        await self._stream.aclose()


def _described(tool: types.Tool, clean: Callable[[str], str]) -> Tool | None:
    """Return a tool without credentials and unprintable characters, or None if it exceeds a limit."""
    description = clean(tool.description or tool.title or "")
    schema = clean(json.dumps(tool.input_schema, ensure_ascii=False))
    is_short = len(description) <= MOST_DESCRIPTION_CHARS and len(schema) <= MOST_SCHEMA_CHARS
    if not is_short or not _TOOL_NAME.fullmatch(clean(tool.name)):
        return None
    return Tool(tool.name, _printable(description), json.loads(_printable(schema)))


def _printable(text: str) -> str:
    return "".join(sign if sign.isprintable() or sign in "\n\t" else " " for sign in text)


def _text_of(result: types.CallToolResult) -> str:
    parts = []
    for block in result.content:
        match block:
            case types.TextContent(text=text):
                parts.append(text)
            case types.EmbeddedResource(resource=types.TextResourceContents(uri=uri, text=text)):
                parts.append(f"{uri}\n{text}")
            case types.ResourceLink(uri=uri, name=name):
                parts.append(f"{name}: {uri}")
            case _:
                parts.append(f"[{block.type}, which is not shown]")
    if not parts and result.structured_content is not None:
        parts.append(json.dumps(result.structured_content, ensure_ascii=False))
    return "\n".join(parts)
