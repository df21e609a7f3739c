"""One request that is passed on: what was read of it, what its client has been answered, and how that breaks off."""

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
    """The request cannot be passed on, or was not answered; in words. `status` is HTTP's, `code` for programs."""

    def __init__(self, status: int, code: str, words: str) -> None:
        super().__init__(words)
        self.status = status
        self.code = code


class LookAgainError(HopError):
    """That bridge does not have the sprite, or is not there; nothing of the request's body was read."""


class Exchange:
    """One request and what its client has been answered so far."""

    def __init__(self, request: web.Request) -> None:
        self.request = request
        #: Why the client's body ended early.
        self.refused: web.HTTPException | None = None
        self.socket: PassedSocket | None = None
        self._has_read = False
        self._response: web.StreamResponse | None = None

    async def body(self) -> AsyncIterator[bytes]:
        """What the client sends, as it comes."""
        self._has_read = True
        try:
            async for chunk in self.request.content.iter_any():
                yield chunk
        except web.HTTPException as refused:
            self.refused = refused
            raise

    async def begin(self, response: web.StreamResponse) -> None:
        """The answer begins."""
        self._response = response
        with _towards_the_client():
            await response.prepare(self.request)
            await self.request.writer.drain()

    async def write(self, chunk: bytes) -> None:
        """A part of it; returns when the client has room for more."""
        assert self._response is not None  # noqa: S101 - it has begun
        with _towards_the_client():
            await self._response.write(chunk)

    def pass_socket(
        self, answer: aiohttp.ClientResponse, *, max_message_bytes: int, stall_seconds: float
    ) -> PassedSocket:
        """It has begun, and is a WebSocket's."""
        with _towards_the_client():
            self.socket = PassedSocket(
                self.request, answer, max_message_bytes=max_message_bytes, stall_seconds=stall_seconds
            )
        return self.socket

    async def finish(self) -> None:
        """It is whole."""
        assert self._response is not None  # noqa: S101 - it has begun
        with _towards_the_client():
            await self._response.write_eof()

    async def broken_off(self, error: Exception) -> web.StreamResponse:
        """What the client gets that waits for a bridge which has gone. HopError where no answer has begun."""
        if self.socket is not None and self._response is not None:
            await self.socket.close(WSCloseCode.GOING_AWAY, _GONE)
            return self._response
        if self._response is None:
            kind = HopError if self._has_read else LookAgainError
            raise kind(503, "unavailable", f"{_GONE} {_UNSURE if self._has_read else UNREAD}") from error
        if self._response.content_type == "text/event-stream":
            # Its own line, whatever the other bridge was in the middle of; those who read events take it for one.
            words = msgspec.json.encode({"error": {"message": _GONE, "type": "server_error", "code": "unavailable"}})
            with suppress(ClientGoneError):
                await self.write(b"\n\ndata: " + words + b"\n\n")
        # What has begun and is not whole must not look as if it were.
        raise ConnectionResetError(_GONE) from error


class ClientGoneError(ConnectionResetError):
    """The client went away, and not the other bridge."""


@contextmanager
def _towards_the_client() -> Iterator[None]:
    try:
        yield
    except ConnectionError as error:
        raise ClientGoneError(str(error)) from error
