"""One forwarded request: what was read of it, what its client has received, and how it fails."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

import msgspec
from aiohttp import WSCloseCode, web

from bridge.cluster.hop_socket import PassedSocket

if TYPE_CHECKING:
    import aiohttp

_GONE: Final = "The bridge that has your agent does not answer."
UNREAD: Final = "Try again in a few seconds: another one takes over."
_UNSURE: Final = "What you sent may have arrived all the same."


class HopError(Exception):
    """The request cannot be forwarded or got no answer. `status` is the HTTP status, `code` a code for programs."""

    def __init__(self, status: int, code: str, words: str) -> None:
        super().__init__(words)
        self.status = status
        self.code = code


class LookAgainError(HopError):
    """That bridge does not own the sprite or is down. No part of the request's body was read, so a retry is safe."""


class Exchange:
    """One forwarded request and the state of the answer to its client."""

    def __init__(self, request: web.Request) -> None:
        self.request = request
        #: The server's reason for ending the client's body early.
        self.refused: web.HTTPException | None = None
        self.socket: PassedSocket | None = None
        self._has_read = False
        self._response: web.StreamResponse | None = None

    async def body(self) -> AsyncIterator[bytes]:
        """Yield the client's body as it arrives."""
        self._has_read = True
        try:
            async for chunk in self.request.content.iter_any():
                yield chunk
        except web.HTTPException as refused:
            self.refused = refused
            raise

    async def begin(self, response: web.StreamResponse) -> None:
        """Start the answer to the client."""
        self._response = response
        with _towards_the_client():
            await response.prepare(self.request)
            await self.request.writer.drain()

    async def write(self, chunk: bytes) -> None:
        """Send a part of the answer. Returns when the client has room for more."""
        assert self._response is not None  # noqa: S101 - it has begun
        with _towards_the_client():
            await self._response.write(chunk)

    def pass_socket(
        self, answer: aiohttp.ClientResponse, *, max_message_bytes: int, stall_seconds: float
    ) -> PassedSocket:
        """Hand the started answer over to a WebSocket."""
        with _towards_the_client():
            self.socket = PassedSocket(
                self.request, answer, max_message_bytes=max_message_bytes, stall_seconds=stall_seconds
            )
        return self.socket

    async def finish(self) -> None:
        """End the answer."""
        assert self._response is not None  # noqa: S101 - it has begun
        with _towards_the_client():
            await self._response.write_eof()

    async def broken_off(self, error: Exception) -> web.StreamResponse:
        """Finish the exchange with a client after the other bridge has gone.

        Close a WebSocket. Raises HopError if no answer has started and ConnectionResetError if it is incomplete.
        """
        if self.socket is not None and self._response is not None:
            await self.socket.close(WSCloseCode.GOING_AWAY, _GONE)
            return self._response
        if self._response is None:
            kind = HopError if self._has_read else LookAgainError
            raise kind(503, "unavailable", f"{_GONE} {_UNSURE if self._has_read else UNREAD}") from error
        if self._response.content_type == "text/event-stream":
            # A separate line, wherever the other bridge broke off; event stream readers take it for an event.
            words = msgspec.json.encode({"error": {"message": _GONE, "type": "server_error", "code": "unavailable"}})
            with suppress(ClientGoneError):
                await self.write(b"\n\ndata: " + words + b"\n\n")
        # An incomplete answer must not look complete.
        raise ConnectionResetError(_GONE) from error


class ClientGoneError(ConnectionResetError):
    """The client disconnected, not the other bridge."""


@contextmanager
def _towards_the_client() -> Iterator[None]:
    try:
        yield
    except ConnectionError as error:
        raise ClientGoneError(str(error)) from error
