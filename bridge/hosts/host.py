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
from pathlib import Path
from types import TracebackType
from typing import Literal, Protocol, Self

from bridge.hosts.workspace import SHARED_FOLDERS
from sprite.protocol.shipping import Lease

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

    #: Whether the machine itself has answered: then it is not one that hangs.
    shows_life = False

    def __init__(self, message: str, *, retryable: bool = True) -> None:
        super().__init__(message)
        self.retryable = retryable

    def again(self) -> HostError:
        """The same, for one more who waits: an exception has one traceback."""
        return HostError(str(self), retryable=self.retryable)


class MachineGoneError(HostError):
    """Where the sprite lived is gone, or it was never made whole again; what it knew is kept as of `as_of` (Unix s).

    Nothing empty is made in its place: somebody has to restore it.
    """

    def __init__(self, message: str, as_of: float | None) -> None:
        super().__init__(message, retryable=False)
        self.as_of = as_of

    def again(self) -> MachineGoneError:
        """See HostError."""
        return MachineGoneError(str(self), self.as_of)


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
    #: By which this bridge speaks to it, where several share the sprites.
    lease: Lease | None = None


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


#: Raises MachineGoneError where the sprite of that name is to be restored, and not to be made anew or used as it is.
#: It is told whether there is anything of the sprite's where it lives.
Guard = Callable[[str, bool], Awaitable[None]]
#: Is awaited before the first step of a restore that cannot be taken back.
Begin = Callable[[], Awaitable[None]]


async def unguarded(_sprite: str, _is_there: bool) -> None:
    """Where nothing is kept of sprites, a new one may be made at any time."""


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


class Restorable(Protocol):
    """A host, as far as a lost sprite is made again there."""

    @property
    def is_one_step(self) -> bool:
        """Whether one step decides a restore, so that none is ever found half done."""
        ...

    async def is_there(self, sprite: str) -> bool:
        """Whether there is anything where the sprite lives that a restore would replace; wakes nothing. HostError."""
        ...

    async def turns(self, sprite: str) -> int | None:
        """How many turns the log has of the sprite that is there; None where it cannot say. May wake it."""
        ...

    async def restore(self, sprite: str, archive: Path, report: Report, *, begin: Begin, anew: bool) -> str:
        """Makes the sprite what the archive says; returns where the earlier one was put, "" if there was none.

        `anew`: on a new machine, in the place of one that is destroyed. HostError: before `begin` was called,
        everything is as it was; after it, the same call makes it whole.
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
