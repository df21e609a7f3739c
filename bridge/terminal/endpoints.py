"""Connections to a bridge: of a local data folder (starting one if necessary), or remote by address."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

import aiohttp
from yarl import URL

from bridge.admin.control import NoBridgeError, control_session
from bridge.client.link import BridgeUnreachableError
from bridge.db.data_folder import FolderTakenError
from bridge.errors import OperatorError
from bridge.terminal.canvas_commands import NotFetchedError, NotRestoredError
from bridge.terminal.drawing import one_line

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from bridge.config import Settings


#: Keeps NAT mappings open. A hanging or lost bridge is noticed after one and a half of these.
_HEARTBEAT_SECONDS = 10.0
#: A sprite's state is one frame.
_MAX_MESSAGE_BYTES = 8 * 1024 * 1024
_CHUNK_BYTES = 1 << 16
#: The message of a refusal has a few sentences.
_MAX_REFUSAL_BYTES, _LONGEST_WORDS = 64 * 1024, 500
_SERVER_FAULT = 500
#: Messages for refusals by HTTP status; a retry is useless.
_REFUSALS = {
    400: "The bridge knows no such person, or lets them in no more: `users list` has who may come in.",
    401: "The bridge does not know this token. `users add NAME` prints one.",
    403: "The bridge does not let this client in.",
    429: "Too many pages and terminals are open at once: close one of them.",
}
#: The same for answers of proxies, which have no message.
_NOT_THERE = "No bridge answers there, or not the one that has your agent."
_OF_PROXIES = {502: _NOT_THERE, 503: "The bridge lets nobody in at the moment.", 504: _NOT_THERE}


class _Endpoint:
    """Base class with HTTP sessions that close with it."""

    def __init__(self) -> None:
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._stack.aclose()

    async def _fetched(
        self, session: aiohttp.ClientSession, address: str, headers: dict[str, str]
    ) -> AsyncIterator[bytes]:
        try:
            async with session.get(URL(address, encoded=True), headers=headers) as response:
                if not response.ok:
                    raise NotFetchedError(await _words_of(response))
                async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
                    yield chunk
        except (aiohttp.ClientError, TimeoutError) as error:
            raise NotFetchedError("The file cannot be fetched at the moment.") from error


class RunningEndpoint(_Endpoint):
    """Connects to the running bridge of a data folder."""

    def __init__(self, settings: Settings, person: str) -> None:
        super().__init__()
        self._settings = settings
        self._person = person
        self._was_there = False

    async def connect(self) -> aiohttp.ClientWebSocketResponse:
        """See BridgeLink."""
        try:
            socket = await self._connected()
        except NoBridgeError as error:
            # A bridge that ran before will return: its owner restarts it.
            raise BridgeUnreachableError(str(error), for_good=not self._was_there) from error
        self._was_there = True
        return socket

    async def fetch(self, path: str) -> AsyncIterator[bytes]:
        """See Fetch."""
        try:
            async with control_session(self._settings.run) as session:
                address = f"http://bridge/files/{quote(path)}?person={self._person}"
                async for chunk in self._fetched(session, address, {}):
                    yield chunk
        except NoBridgeError as error:
            raise NotFetchedError("Not connected right now.") from error

    async def restore(self, how: str = "restore") -> str:
        """See Restore."""
        try:
            async with control_session(self._settings.run) as session:
                return await _restored(session, f"http://bridge/restore?person={self._person}&how={how}", {})
        except NoBridgeError as error:
            raise NotRestoredError("Not connected right now.") from error

    async def _connected(self) -> aiohttp.ClientWebSocketResponse:
        async with AsyncExitStack() as opening:
            session = await opening.enter_async_context(
                control_session(self._settings.run, raise_for_status=_explained)
            )
            socket = await _open(session, f"/ws?person={self._person}", {})
            # Both end with the endpoint: a broken socket leaves only a closed session.
            self._stack.push_async_exit(opening.pop_all())
            return socket


class LocalEndpoint(RunningEndpoint):
    """Connects to the running bridge of a data folder, or starts one for the duration of the conversation.

    A bridge is started only before the first connection. Later its owner restarts it, and a bridge of this program
    would lock the folder against that. For the same reason this program's bridge ends when `bridge serve` requests the
    folder. `on_death` is called when this program's bridge fails, `tell` gets messages for the person.
    """

    def __init__(
        self, settings: Settings, person: str, on_death: Callable[[], None], tell: Callable[[str], Awaitable[None]]
    ) -> None:
        super().__init__(settings, person)
        self._on_death = on_death
        self._tell = tell
        self._may_start = True
        #: The bridge that this program started, while it runs.
        self._own = AsyncExitStack()
        #: A request to give way may arrive slightly before start-up is complete.
        self._changing = asyncio.Lock()
        self._giving_way: asyncio.Task[None] | None = None
        #: Whether this program started the bridge in use, and so ends it.
        self.is_ours = False

    async def connect(self) -> aiohttp.ClientWebSocketResponse:
        """See BridgeLink."""
        try:
            socket = await self._connected()
        except NoBridgeError as error:
            if not self._may_start:
                raise BridgeUnreachableError(
                    f"Waiting for the bridge on {self._settings.data}: `python -m bridge serve` starts one."
                ) from error
            await self._start()
            socket = await self._connected()
        self._may_start = False
        return socket

    async def _start(self) -> None:
        from bridge.app import running
        from bridge.telemetry import logs

        # The terminal belongs to the conversation.
        logs.set_up_silently(self._settings.log_file)
        async with self._changing:
            try:
                await self._own.enter_async_context(running(self._settings, self._on_death, self._give_way))
            except FolderTakenError as error:
                # Another bridge is starting or stopping; the next attempt will find out.
                raise BridgeUnreachableError("A bridge is starting or stopping here.") from error
            except OperatorError as error:
                raise BridgeUnreachableError(str(error), for_good=True) from error
            self._stack.push_async_callback(self._end_own)
            self.is_ours = True
            self._may_start = False

    def _give_way(self) -> None:
        if self._giving_way is None:
            self._giving_way = asyncio.create_task(self._hand_over(), name="chat-gives-way")

    async def _hand_over(self) -> None:
        async with self._changing:
            self.is_ours = False
            await self._own.aclose()
        # After the close: while an editor has the screen this waits, and `bridge serve` must not wait for it.
        await self._tell("This terminal's own bridge has given way to one that serves: the conversation goes on there.")

    async def _end_own(self) -> None:
        await (self._giving_way or self._own.aclose())


class RemoteEndpoint(_Endpoint):
    """Connects to a bridge by its address, with a person's token."""

    def __init__(self, url: str, token: str) -> None:
        super().__init__()
        self._url = url.rstrip("/")
        self._token = token
        self._session: aiohttp.ClientSession | None = None
        self._sockets: aiohttp.ClientSession | None = None

    async def connect(self) -> aiohttp.ClientWebSocketResponse:
        """See BridgeLink."""
        if self._sockets is None:
            self._session = await self._opened()
            self._sockets = await self._opened(raise_for_status=_explained)
        return await _open(self._sockets, f"{self._url}/ws", self._headers)

    async def _opened(self, **options: Any) -> aiohttp.ClientSession:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10.0)
        session = aiohttp.ClientSession(timeout=timeout, trust_env=True, **options)
        return await self._stack.enter_async_context(session)

    async def fetch(self, path: str) -> AsyncIterator[bytes]:
        """See Fetch."""
        if self._session is None:
            raise NotFetchedError("Not connected right now.")
        async for chunk in self._fetched(self._session, f"{self._url}/files/{quote(path)}", self._headers):
            yield chunk

    async def restore(self, how: str = "restore") -> str:
        """See Restore."""
        if self._session is None:
            raise NotRestoredError("Not connected right now.")
        return await _restored(self._session, f"{self._url}/restore?how={how}", self._headers)

    @property
    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}"}


async def _restored(session: aiohttp.ClientSession, address: str, headers: dict[str, str]) -> str:
    try:
        async with session.post(address, headers=headers) as response:
            if not response.ok:
                raise NotRestoredError(await _words_of(response))
            return str((await response.json())["message"])
    except (aiohttp.ClientError, TimeoutError) as error:
        raise NotRestoredError(
            "The connection was lost. The bridge goes on with it; /status says how it is."
        ) from error


async def _words_of(response: aiohttp.ClientResponse) -> str:
    """Return the message of a bridge's refusal."""
    try:
        said = json.loads(await response.content.read(_MAX_REFUSAL_BYTES))
        return one_line(said["error"]["message"])[:_LONGEST_WORDS]
    except (aiohttp.ClientError, ValueError, KeyError, TypeError, RecursionError):
        return _OF_PROXIES.get(response.status, f"The bridge answers with status {response.status}.")


async def _explained(response: aiohttp.ClientResponse) -> None:
    """Raise BridgeUnreachableError for a refused WebSocket, with the bridge's message if there is one."""
    status = response.status
    if status == HTTPStatus.SWITCHING_PROTOCOLS:
        return
    words = _REFUSALS.get(status) or await _words_of(response)
    raise BridgeUnreachableError(words, for_good=status < _SERVER_FAULT)


async def _open(session: aiohttp.ClientSession, path: str, headers: dict[str, str]) -> aiohttp.ClientWebSocketResponse:
    return await session.ws_connect(
        path, headers=headers, heartbeat=_HEARTBEAT_SECONDS, max_msg_size=_MAX_MESSAGE_BYTES
    )
