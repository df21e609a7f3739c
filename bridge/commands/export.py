"""`python -m bridge export NAME [FILE]`: everything of a person's agent as one file, wherever the agent lives.

Asked of the running bridge, or of the host when none runs. Written aside and put in its place once it is whole.
"""

from __future__ import annotations

import argparse
import os
import stat
import sys
import tempfile
import zipfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractContextManager, AsyncExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote

import aiohttp
from rich.console import Console

from bridge import app
from bridge.chat.counted import sized
from bridge.commands.reach import add_data, running_bridge
from bridge.config import Settings
from bridge.hosts.host import HostError
from bridge.hosts.steps import Steps
from bridge.operating.control import ControlError, NoBridgeError

_FAILED = 1
_STDOUT = "-"
_CHUNK_BYTES = 1 << 18
#: A VM that is asleep is woken, and brought up to date, before the first byte comes.
_SILENT_SECONDS = 1800.0
#: What a VM sends is bounded by the disk: so much of it stays free.
_LEFT_FREE_BYTES = 256 * 1024 * 1024
_LOOK_EVERY_BYTES = 32 * 1024 * 1024


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `export`."""
    parser.epilog = (
        "The archive is plain text (docs/archive.md); `python -m sprite import FILE` makes a workspace of it."
    )
    parser.add_argument("name", metavar="NAME", help="the person whose agent it is; your own here is called local")
    parser.add_argument("file", metavar="FILE", nargs="?", help="what to write (default: NAME.zip); - for stdout")
    parser.add_argument("--force", action="store_true", help="replace FILE if it is there")
    parser.add_argument(
        "--provider", choices=("local", "sprites"), default="local", help="where it lives, when no bridge runs here"
    )
    add_data(parser)
    parser.set_defaults(work=_export)


async def _export(settings: Settings, arguments: argparse.Namespace) -> int:
    name, path = arguments.name, Path(arguments.file or f"{arguments.name}.zip")
    to_stdout = arguments.file == _STDOUT
    if to_stdout and sys.stdout.isatty():
        raise ControlError("An archive is no text: name a file, or send it on with `export NAME - > FILE`.")
    target: AbstractContextManager[BinaryIO] = (
        nullcontext(sys.stdout.buffer) if to_stdout else _whole_file(path, force=arguments.force)
    )
    # Stdout may be the archive.
    with Steps(Console(stderr=True, highlight=False)) as show:
        try:
            with target as stream:
                size = await _receive(settings, name, stream, show)
        except HostError as error:
            show("failed", str(error))
            return _FAILED
        where = "was sent on" if to_stdout else f"is in {path}, for you alone to read"
        show("done", f"Everything of {name}'s agent {where} ({sized(size)}).")
    return 0


async def _receive(settings: Settings, name: str, stream: BinaryIO, show: Steps) -> int:
    """Writes the archive as it comes; returns its size. HostError or ControlError where it is not whole."""
    size = looked = 0
    show("connecting", f"Asking for {name}'s agent.")
    async with AsyncExitStack() as stack:
        async for chunk in await _chunks(stack, settings, name, show):
            size += len(chunk)
            stream.write(chunk)
            show("connecting", f"The archive is coming: {sized(size)}")
            if size - looked > _LOOK_EVERY_BYTES:
                looked = size
                _refuse_full_disk(stream)
    stream.flush()
    return size


async def _chunks(stack: AsyncExitStack, settings: Settings, name: str, show: Steps) -> AsyncIterator[bytes]:
    try:
        session = await stack.enter_async_context(running_bridge(settings))
    except NoBridgeError:
        host = await stack.enter_async_context(app.host_alone(settings))
        return await host.export(name, show)
    return _from_bridge(session, name)


async def _from_bridge(session: aiohttp.ClientSession, name: str) -> AsyncIterator[bytes]:
    timeout = aiohttp.ClientTimeout(total=None, sock_read=_SILENT_SECONDS)
    try:
        async with session.get(f"/export/{quote(name, safe='')}", timeout=timeout) as response:
            if not response.ok:
                raise ControlError((await response.json())["error"]["message"])
            async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
                yield chunk
    except (aiohttp.ClientError, TimeoutError) as error:
        raise ControlError("The archive was cut off; the bridge's log may say why. Nothing was kept of it.") from error


@contextmanager
def _whole_file(path: Path, *, force: bool) -> Iterator[BinaryIO]:
    """A new file for its owner alone, there once the block has ended well and it is an archive, or not at all."""
    _refuse_existing(path, force=force)
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name[:100]}.", suffix=".part", dir=path.parent)
    except OSError as error:
        raise ControlError(f"{path} cannot be written: {error.strerror}.") from error
    unfinished = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(descriptor)
        if not _is_whole(unfinished):
            raise ControlError("What came is no whole archive. Nothing was kept of it; try again.")
        _refuse_existing(path, force=force)
        unfinished.replace(path)
    except OSError as error:
        raise ControlError(f"{path} could not be written ({error.strerror}). Nothing was left behind.") from error
    finally:
        unfinished.unlink(missing_ok=True)


def _refuse_existing(path: Path, *, force: bool) -> None:
    if path.is_dir():
        raise ControlError(f"{path} is a folder: say which file to write, such as {path / 'sprite.zip'}.")
    if os.path.lexists(path) and not force:
        raise ControlError(f"{path} is there already. Choose another name, or replace it with --force.")


def _refuse_full_disk(stream: BinaryIO) -> None:
    disk = os.fstatvfs(stream.fileno())
    is_file = stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    if is_file and disk.f_bavail * disk.f_frsize < _LEFT_FREE_BYTES:
        raise ControlError("The disk is nearly full, and there is more to come. Nothing was kept; make room first.")


def _is_whole(path: Path) -> bool:
    """Whether the end of an archive is there; an import checks every byte."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.namelist()[-1:] == ["manifest.json"]
    except (zipfile.BadZipFile, OSError):
        return False
