"""What a host is: the one small interface of where sprites live, with two implementations (`local`, `sprites`).

A host knows how a sprite is created, started, woken, updated and reached; it knows nothing of missions,
people or money. A sprite is named as its person is: `[a-z][a-z0-9-]{0,38}`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal, Protocol, Self

from bridge.hosts.workspace import SHARED_FOLDERS

#: What people who wait are told is going on.
Phase = Literal["connecting", "waking", "updating"]
#: Says how far it is, in words a person understands; returns at once.
Report = Callable[[Phase, str], None]
State = Literal["absent", "stopped", "running", "warm", "cold", "unknown"]
#: What a VM may reach: everything, the bridge and the package index, or the bridge alone.
Egress = Literal["open", "packages", "bridge"]

_READ_BYTES = 1 << 16
_CLOSE_SECONDS = 2.0
#: In a file's name these are nobody's wish, and half of a surrogate pair is no character.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_FOLDERS = ", ".join(f"{folder}/" for folder in sorted(SHARED_FOLDERS))
#: Names of people and of their sprites; short enough for a host name, and never a path.
NAME = re.compile(r"[a-z][a-z0-9-]{0,38}")


class HostError(Exception):
    """A sprite cannot be had, in words a person understands; `retryable` says whether waiting may help."""

    def __init__(self, message: str, *, retryable: bool = True) -> None:
        super().__init__(message)
        self.retryable = retryable


class NoSuchFileError(HostError):
    """There is no such file in the person's folders."""

    def __init__(self, message: str) -> None:
        super().__init__(message, retryable=False)


class Channel(Protocol):
    """A byte stream to a sprite's TCP server; the boundaries of writes are not kept."""

    async def read(self) -> bytes:
        """Some bytes, b"" at the end; an OSError where the connection was cut."""
        ...

    def write(self, data: bytes) -> None:
        """Queues bytes to be sent; what is wrong with the connection shows in `read` and `drain`."""
        ...

    async def drain(self) -> None:
        """Waits while too much is queued; an OSError where the connection was cut."""
        ...

    async def close(self) -> None:
        """Closes, within a bound, and as often as called."""
        ...


@dataclass(frozen=True, slots=True)
class Reached:
    """A connection to a sprite, and the sprite's own word that opens it."""

    channel: Channel
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class HostState:
    """How a sprite is, as seen from outside. `version` is what runs there, None where that is not known."""

    state: State
    version: str | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ModelAccess:
    """The only way to a model that a sprite gets: the bridge's own address, and a token worth its budget."""

    base_url: str
    token: str = field(repr=False)


#: Mints the access of the sprite of that name; every earlier token of it ends.
Access = Callable[[str], Awaitable[ModelAccess]]


class Host(Protocol):
    """`async with host:`; leaving it stops what the host started on this machine, and nothing else."""

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def reach(self, sprite: str, report: Report) -> Reached:
        """A new connection; creates, deploys, updates, wakes and starts what is missing. HostError if it cannot."""
        ...

    async def deploy(self, sprite: str, report: Report) -> None:
        """Brings the sprite to what it should be, whether or not anyone wants to talk to it. HostError."""
        ...

    async def state(self, sprite: str) -> HostState:
        """How the sprite is; wakes nothing."""
        ...

    async def fetch(self, sprite: str, path: str) -> AsyncIterator[bytes]:
        """The file at `path` below the workspace, in chunks; only of the person's folders. NoSuchFileError."""
        ...

    async def export(self, sprite: str, report: Report) -> AsyncIterator[bytes]:
        """Everything of the workspace as one archive, in chunks: `python -m sprite export -`. HostError.

        Whether it is whole is known at its end: a HostError then says why it is not.
        """
        ...


class TcpChannel:
    """A Channel over a TCP connection of this machine."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, host: str, port: int) -> TcpChannel:
        """Connects, or raises an OSError; the caller bounds it."""
        return cls(*await asyncio.open_connection(host, port))

    async def read(self) -> bytes:
        """See Channel."""
        return await self._reader.read(_READ_BYTES)

    def write(self, data: bytes) -> None:
        """See Channel."""
        self._writer.write(data)

    async def drain(self) -> None:
        """See Channel."""
        await self._writer.drain()

    async def close(self) -> None:
        """See Channel."""
        self._writer.close()
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await self._writer.wait_closed()


def checked_name(name: str) -> str:
    """The name, if a sprite may have it; HostError otherwise. Names become folders and parts of addresses."""
    if NAME.fullmatch(name) is None:
        raise HostError(
            f"{name!r} is no name for a sprite: up to 39 of a-z, 0-9 and -, beginning with a letter.", retryable=False
        )
    return name


def downloadable(path: str) -> tuple[str, ...]:
    """The parts of a path below the workspace that people may download; NoSuchFileError for any other."""
    parts = tuple(path.split("/"))
    is_plain = all(part not in {"", ".", ".."} and "\\" not in part and not _CONTROL.search(part) for part in parts)
    if not is_plain or len(parts) < 2 or parts[0] not in SHARED_FOLDERS:  # noqa: PLR2004 - a folder, a name
        raise NoSuchFileError(f"Only files of {_FOLDERS} can be downloaded.")
    return parts
