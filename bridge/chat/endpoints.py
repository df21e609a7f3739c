"""Ways to a bridge: the one of this machine's data folder (started when there is none), or one elsewhere by address."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Self

import aiohttp

from bridge.chat.bridge_link import BridgeUnreachableError
from bridge.data_folder import FolderTakenError
from bridge.errors import OperatorError
from bridge.operating.control import NoBridgeError, control_session

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from bridge.config import Settings

#: A way through NATs stays open, and a bridge that is gone is noticed.
_HEARTBEAT_SECONDS = 30.0
#: A sprite's state is one frame.
_MAX_MESSAGE_BYTES = 8 * 1024 * 1024
_UNAUTHORIZED, _FORBIDDEN, _TOO_MANY = 401, 403, 429


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


class LocalEndpoint(_Endpoint):
    """`connect` finds the bridge that runs on a data folder; where none does, it starts one for as long as we last.

    `on_death` is called when that one cannot go on.
    """

    def __init__(self, settings: Settings, person: str, on_death: Callable[[], None]) -> None:
        super().__init__()
        self._settings = settings
        self._person = person
        self._on_death = on_death
        #: Whether the bridge in use was started here, and so ends here.
        self.is_ours = False

    async def connect(self) -> aiohttp.ClientWebSocketResponse:
        """See BridgeLink."""
        try:
            return await self._connected()
        except NoBridgeError:
            await self._start()
        return await self._connected()

    async def _connected(self) -> aiohttp.ClientWebSocketResponse:
        async with AsyncExitStack() as opening:
            session = await opening.enter_async_context(control_session(self._settings.run))
            socket = await _open(session, f"/ws?person={self._person}", {})
            # Both end with the endpoint: a socket that broke leaves nothing but a closed session.
            self._stack.push_async_exit(opening.pop_all())
            return socket

    async def _start(self) -> None:
        from bridge.app import running
        from bridge.observing import logs

        # The terminal belongs to the conversation.
        logs.set_up_silently(self._settings.log_file)
        try:
            await self._stack.enter_async_context(running(self._settings, self._on_death))
        except FolderTakenError as error:
            # One that is just starting, or just stopping: the next attempt knows.
            raise BridgeUnreachableError("A bridge is starting or stopping here.") from error
        except OperatorError as error:
            raise BridgeUnreachableError(str(error), for_good=True) from error
        self.is_ours = True


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
        return await _open(self._session, f"{self._url}/ws", {"Authorization": f"Bearer {self._token}"})


async def _open(session: aiohttp.ClientSession, path: str, headers: dict[str, str]) -> aiohttp.ClientWebSocketResponse:
    try:
        return await session.ws_connect(
            path, headers=headers, heartbeat=_HEARTBEAT_SECONDS, max_msg_size=_MAX_MESSAGE_BYTES
        )
    except aiohttp.WSServerHandshakeError as error:
        message, for_good = {
            _UNAUTHORIZED: ("The bridge does not know this token. `users add NAME` prints one.", True),
            _FORBIDDEN: ("The bridge does not let this client in.", True),
            _TOO_MANY: ("Too many pages and terminals are open at once: close one of them.", True),
        }.get(error.status, (f"The bridge answers with status {error.status}.", error.status < 500))  # noqa: PLR2004 - HTTP
        raise BridgeUnreachableError(message, for_good=for_good) from error
