"""Connections to a bridge: of a local data folder (starting one if necessary), or remote by address."""

import json
from collections.abc import Callable
from contextlib import AsyncExitStack
from http import HTTPStatus

import aiohttp

from bridge.admin.control import NoBridgeError, control_session
from bridge.client.link import BridgeUnreachableError
from bridge.config import Settings
from bridge.db.data_folder import FolderTakenError
from bridge.errors import OperatorError
from bridge.terminal.drawing import one_line
from sprite.common.orphans import adopting
from sprite.common.tasks import Service

#: Keeps NAT mappings open. A hanging or lost bridge is noticed after one and a half of these.
_HEARTBEAT_SECONDS = 10.0
#: A sprite's state is one frame.
_MAX_MESSAGE_BYTES = 8 * 1024 * 1024
#: The message of a refusal has a few sentences.
_MAX_REFUSAL_BYTES, _LONGEST_WORDS = 64 * 1024, 500
_SERVER_FAULT = 500
#: Messages for refusals by HTTP status, instead of the bridge's own.
_REFUSALS = {
    400: "There is no such person, or the person has no access: `users list` shows everyone.",
    401: "The bridge does not know this token. `users add NAME` prints one.",
    403: "The bridge denies this client access.",
    429: "Too many pages and terminals are open at once: close one of them.",
}
#: The same for answers of proxies, which have no message.
_NOT_THERE = "There is no bridge at this address, or it does not have your agent."
_OF_PROXIES = {502: _NOT_THERE, 503: "The bridge accepts no connections at the moment.", 504: _NOT_THERE}


class LocalEndpoint(Service):
    """Connects to the running bridge of a data folder, or starts one for the duration of the conversation.

    After the first connection none is started: it would lock the folder against the bridge's owner, who restarts it.
    """

    def __init__(self, settings: Settings, person: str) -> None:
        self.settings = settings
        self.person = person
        #: Called when a bridge that this program started fails. Without it, none is started.
        self.on_death: Callable[[], None] | None = None
        #: Whether this program started the bridge in use, and so ends it; and whether a bridge was ever there.
        self.is_ours = self._was_there = False
        #: Whether the demo model answers, from the first connection on.
        self.offline_model = False

    async def connect(self) -> aiohttp.ClientWebSocketResponse:
        """See BridgeLink."""
        try:
            socket = await self._connected()
        except NoBridgeError as error:
            if self._was_there:
                words = f"Waiting for the bridge on {self.settings.data}: `python -m bridge serve` starts one."
                raise BridgeUnreachableError(words) from error
            if self.on_death is None:
                raise BridgeUnreachableError(str(error), for_good=True) from error
            await self._start(self.on_death)
            socket = await self._connected()
        self._was_there = True
        return socket

    async def _connected(self) -> aiohttp.ClientWebSocketResponse:
        async with AsyncExitStack() as opening:
            session = await opening.enter_async_context(control_session(self.settings.run, raise_for_status=_explained))
            async with session.get("/model", raise_for_status=True) as answer:
                self.offline_model = (await answer.json())["offline"]
            socket = await _open(session, f"/ws?person={self.person}", {})
            # Both end with the endpoint: a broken socket leaves only a closed session.
            self._stack.push_async_exit(opening.pop_all())
            return socket

    async def _start(self, on_death: Callable[[], None]) -> None:
        from bridge.app import running
        from bridge.telemetry import logs

        # The terminal belongs to the conversation.
        logs.set_up_silently(self.settings.log_file)
        try:
            await self._stack.enter_async_context(adopting())
            await self._stack.enter_async_context(running(self.settings, on_death))
        except FolderTakenError as error:
            # Another bridge is starting or stopping; the next attempt will find out.
            raise BridgeUnreachableError("A bridge is starting or stopping here.") from error
        except OperatorError as error:
            raise BridgeUnreachableError(str(error), for_good=True) from error
        self.is_ours = self._was_there = True


class RemoteEndpoint(Service):
    """Connects to a bridge by its address, with a person's token."""

    def __init__(self, url: str, token: str) -> None:
        self.url = url.rstrip("/")
        self._token = token

    async def _open(self, stack: AsyncExitStack) -> None:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=10.0)
        session = aiohttp.ClientSession(timeout=timeout, trust_env=True, raise_for_status=_explained)
        self._sockets = await stack.enter_async_context(session)

    async def connect(self) -> aiohttp.ClientWebSocketResponse:
        """See BridgeLink."""
        return await _open(self._sockets, f"{self.url}/ws", {"Authorization": f"Bearer {self._token}"})


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
