"""The interface of hosts, which create, start, wake, update and connect to sprites (`local`, `sprites`).

A host knows nothing of missions, people or money. A sprite has the name of its person.
"""

import argparse
import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

from sprite.protocol.replication import Lease
from sprite.protocol.shapes import FILE_FOLDERS

SYSTEM = ".os"
#: The following names are below SYSTEM.
LOCK = "run/lock"
TOKEN = "run/token"  # noqa: S105 - a file's name
ADDRESS = "run/address"
MEMORY = "memory"
LOG = "memory/transcript.db"
#: Input history of the terminal client, beside the sprite's own files; forgetting must also clear it.
CHAT_HISTORY = "run/chat_history"
#: The person's folders whose files may be downloaded.
SHARED_FOLDERS = frozenset(FILE_FOLDERS)


#: Progress that waiting users see.
Phase = Literal["connecting", "waking", "updating"]
#: Receives progress messages for users; returns at once.
Report = Callable[[Phase, str], None]
State = Literal["absent", "stopped", "running", "warm", "cold", "unknown"]

_READ_BYTES = 1 << 16
_CLOSE_SECONDS = 2.0
#: Characters that no file name needs; half of a surrogate pair is no character.
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_FOLDERS = ", ".join(f"{folder}/" for folder in sorted(SHARED_FOLDERS))
#: Names of people and of their sprites; short enough for a host name, and never a path.
NAME = re.compile(r"[a-z][a-z0-9-]{0,38}")
NAME_WORDS = "use up to 39 of a-z, 0-9 and -, beginning with a letter"


def person_name(text: str) -> str:
    """Return a person's name, which argparse takes here; it is safe in a path."""
    if NAME.fullmatch(text) is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a valid name: {NAME_WORDS}")
    return text


class HostError(Exception):
    """A sprite is not available; the message is for users, `retryable` means that waiting may help."""

    def __init__(self, message: str, *, retryable: bool = True) -> None:
        super().__init__(message)
        self.retryable = retryable


class MachineGoneError(HostError):
    """The machine is gone or half restored; a person has to restore its replica of `as_of` (Unix seconds)."""

    def __init__(self, message: str, as_of: float | None) -> None:
        super().__init__(message, retryable=False)
        self.as_of = as_of


class NoSuchFileError(HostError):
    """There is no such file in the person's folders."""


class Channel(Protocol):
    """A byte stream to a sprite's TCP server; write boundaries are not preserved."""

    async def read(self) -> bytes:
        """Return some bytes, b"" at the end. Raise OSError if the connection was cut."""

    def write(self, data: bytes) -> None:
        """Queue bytes to be sent; connection errors appear in `read` and `drain`."""

    async def drain(self) -> None:
        """Wait while too much is queued. Raise OSError if the connection was cut."""

    async def close(self) -> None:
        """Close the connection within a bounded time; idempotent."""


@dataclass(frozen=True, slots=True)
class Reached:
    """A connection to a sprite, and the sprite's token for it."""

    channel: Channel
    token: str = field(repr=False)
    #: The lease under which this bridge uses the sprite, where several bridges share the sprites.
    lease: Lease | None = None


@dataclass(frozen=True, slots=True)
class HostState:
    """State of a sprite as seen from outside. `version` is the running version, None if unknown."""

    state: State
    version: str | None = None
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ModelAccess:
    """A sprite's access: by `token` to a model (the agent can read it), by `key` to connections (the agent cannot)."""

    base_url: str
    token: str = field(repr=False)
    key: str = field(repr=False)

    @property
    def variables(self) -> dict[str, str]:
        """Return the environment variables that give a sprite this access."""
        parts = urlsplit(self.base_url)
        connections = parts._replace(netloc=f"connections:{self.key}@{parts.netloc}").geturl()
        return {"ANTHROPIC_BASE_URL": self.base_url, "ANTHROPIC_API_KEY": self.token, "SPRITE_CONNECTIONS": connections}


#: Raises MachineGoneError if the sprite must be restored instead of being created or used as it is. The second
#: argument tells whether anything of the sprite exists on the host.
Guard = Callable[[str, bool], Awaitable[None]]
#: Awaited before the first irreversible step of a restore.
Begin = Callable[[], Awaitable[None]]


#: Creates the access of a sprite; its earlier tokens are revoked.
Access = Callable[[str], Awaitable[ModelAccess]]


class Host(AbstractAsyncContextManager[Any], Protocol):
    """Provide people's sprites: `async with host:`; leaving it stops only what the host started on this machine."""

    async def reach(self, sprite: str, report: Report) -> Reached:
        """Open a connection; create, deploy, update, wake and start the sprite as needed. Raise HostError."""

    async def deploy(self, sprite: str, report: Report) -> None:
        """Bring the sprite up to date, whether or not a client wants to connect. Raise HostError."""

    async def state(self, sprite: str) -> HostState:
        """Return the sprite's state without waking it."""

    async def fetch(self, sprite: str, path: str) -> AsyncIterator[bytes]:
        """Yield the file at `path` below the workspace; only files in the person's folders. Raise NoSuchFileError."""

    async def export(self, sprite: str, report: Report) -> AsyncIterator[bytes]:
        """Yield the whole workspace as one archive, in chunks: `python -m sprite export -`. Raise HostError.

        Only the end tells whether the archive is complete: a HostError there says why it is not.
        """

    #: Whether a restore is one atomic step, so that it is never found half done.
    is_one_step: bool

    async def is_there(self, sprite: str) -> bool:
        """Return whether a restore would replace anything; does not wake the sprite. Raise HostError."""

    async def restore(self, sprite: str, archive: Path, report: Report, *, begin: Begin) -> str:
        """Restore the sprite from an archive; return where the earlier one was moved, "" if there was none.

        On a HostError before `begin` is called, nothing has changed; after it, a repetition completes the restore.
        """


class TcpChannel:
    """A Channel over a TCP connection of this machine."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, host: str, port: int) -> "TcpChannel":
        """Connect or raise OSError; the caller sets the timeout."""
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
    """Return the name, which becomes a folder and a part of addresses. Raise HostError if it is invalid."""
    if NAME.fullmatch(name) is None:
        raise HostError(f"{name!r} is not a valid name: {NAME_WORDS}.", retryable=False)
    return name


def downloadable(path: str) -> tuple[str, ...]:
    """Return the parts of a path below the workspace that people may download. Raise NoSuchFileError for any other."""
    parts = tuple(path.split("/"))
    is_plain = all(part not in {"", ".", ".."} and "\\" not in part and not _CONTROL.search(part) for part in parts)
    if not is_plain or len(parts) < 2 or parts[0] not in SHARED_FOLDERS:  # noqa: PLR2004 - a folder, a name
        raise NoSuchFileError(f"Only files in {_FOLDERS} can be downloaded.")
    return parts


def printable(line: str) -> str:
    """Replace characters that could control a terminal: the text comes from a VM or a sprite."""
    return "".join(character if character.isprintable() else " " for character in line)


async def with_first(first: bytes, others: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the chunk that was read before the others, then the others."""
    try:
        if first:
            yield first
        async for chunk in others:
            yield chunk
    finally:
        if isinstance(others, AsyncGenerator):
            # If the reader stops in the middle, the command ends now.
            await others.aclose()
