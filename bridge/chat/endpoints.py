"""Ways to a bridge: the one of this machine's data folder (started when there is none), or one elsewhere by address."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Self
from urllib.parse import quote

import aiohttp
from yarl import URL

from bridge.chat.bridge_link import BridgeUnreachableError
from bridge.chat.file_commands import NotFetchedError
from bridge.data_folder import FolderTakenError
from bridge.errors import OperatorError
from bridge.operating.control import NoBridgeError, control_session

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from types import TracebackType

    from bridge.config import Settings

#: A way through NATs stays open, and a bridge that is gone is noticed.
_HEARTBEAT_SECONDS = 30.0
#: A sprite's state is one frame.
_MAX_MESSAGE_BYTES = 8 * 1024 * 1024
_CHUNK_BYTES = 1 << 16
_NOBODY, _UNAUTHORIZED, _FORBIDDEN, _TOO_MANY = 400, 401, 403, 429


class _Endpoint:
    """What both have in common: HTTP sessions that live as long as it does."""

    def __init__(self) -> None:
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
    """`connect` finds the bridge that runs on a data folder."""

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
            # One that was there comes back: its owner restarts it.
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

    async def _connected(self) -> aiohttp.ClientWebSocketResponse:
        async with AsyncExitStack() as opening:
            session = await opening.enter_async_context(control_session(self._settings.run))
            socket = await _open(session, f"/ws?person={self._person}", {})
            # Both end with the endpoint: a socket that broke leaves nothing but a closed session.
            self._stack.push_async_exit(opening.pop_all())
            return socket


class LocalEndpoint(RunningEndpoint):
    """`connect` finds the bridge that runs on a data folder; where none does, it starts one for as long as we last.

    Only before the first connection is one started: a bridge that ended since is for its owner to start again, and
    ours would hold the folder against it. For the same reason ours ends when `bridge serve` asks for the folder.
    `on_death` is called when ours cannot go on, `tell` with words for the person.
    """

    def __init__(
        self, settings: Settings, person: str, on_death: Callable[[], None], tell: Callable[[str], Awaitable[None]]
    ) -> None:
        super().__init__(settings, person)
        self._on_death = on_death
        self._tell = tell
        self._may_start = True
        #: The bridge that was started here, while it runs.
        self._own = AsyncExitStack()
        #: It is asked to give way from the moment it answers, which is a little before it has started.
        self._changing = asyncio.Lock()
        self._giving_way: asyncio.Task[None] | None = None
        #: Whether the bridge in use was started here, and so ends here.
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
        from bridge.observing import logs

        # The terminal belongs to the conversation.
        logs.set_up_silently(self._settings.log_file)
        async with self._changing:
            try:
                await self._own.enter_async_context(running(self._settings, self._on_death, self._give_way))
            except FolderTakenError as error:
                # One that is just starting, or just stopping: the next attempt knows.
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
        # Told afterwards: a screen that an editor has waits for the editor, and the one that serves must not.
        await self._tell("This terminal's own bridge has given way to one that serves: the conversation goes on there.")

    async def _end_own(self) -> None:
        await (self._giving_way or self._own.aclose())


class RemoteEndpoint(_Endpoint):
    """`connect` goes to a bridge by its address, with a person's token."""

    def __init__(self, url: str, token: str) -> None:
        super().__init__()
        self._url = url.rstrip("/")
        self._token = token
        self._session: aiohttp.ClientSession | None = None

    async def connect(self) -> aiohttp.ClientWebSocketResponse:
        """See BridgeLink."""
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=10.0)
            self._session = await self._stack.enter_async_context(
                aiohttp.ClientSession(timeout=timeout, trust_env=True)
            )
        return await _open(self._session, f"{self._url}/ws", self._headers)

    async def fetch(self, path: str) -> AsyncIterator[bytes]:
        """See Fetch."""
        if self._session is None:
            raise NotFetchedError("Not connected right now.")
        async for chunk in self._fetched(self._session, f"{self._url}/files/{quote(path)}", self._headers):
            yield chunk

    @property
    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}"}


async def _words_of(response: aiohttp.ClientResponse) -> str:
    """What a bridge says where it has no file to give."""
    try:
        return str((await response.json())["error"]["message"])
    except (aiohttp.ClientError, ValueError, KeyError, TypeError):
        return f"The bridge answers with status {response.status}."


async def _open(session: aiohttp.ClientSession, path: str, headers: dict[str, str]) -> aiohttp.ClientWebSocketResponse:
    try:
        return await session.ws_connect(
            path, headers=headers, heartbeat=_HEARTBEAT_SECONDS, max_msg_size=_MAX_MESSAGE_BYTES
        )
    except aiohttp.WSServerHandshakeError as error:
        message, for_good = {
            _NOBODY: (
                "The bridge knows no such person, or lets them in no more: `users list` has who may come in.",
                True,
            ),
            _UNAUTHORIZED: ("The bridge does not know this token. `users add NAME` prints one.", True),
            _FORBIDDEN: ("The bridge does not let this client in.", True),
            _TOO_MANY: ("Too many pages and terminals are open at once: close one of them.", True),
        }.get(error.status, (f"The bridge answers with status {error.status}.", error.status < 500))  # noqa: PLR2004 - HTTP
        raise BridgeUnreachableError(message, for_good=for_good) from error
