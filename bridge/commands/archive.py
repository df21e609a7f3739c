"""`python -m bridge export NAME [FILE]` and `restore NAME`: an agent as one archive, and a lost agent from its replica.

Archives are written to a temporary file and renamed once they are complete.
"""

import argparse
import asyncio
import sys
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO, TextIO
from urllib.parse import unquote

import aiohttp
import msgspec

from bridge.admin.control import ControlError
from bridge.admin.operator_api import AS_OF, LEFT_OUT
from bridge.admin.status import ago
from bridge.commands.reach import add_person, add_provider, bridge_or_folder, moment
from bridge.config import Settings
from bridge.replicas.restore import moment as moment_words
from sprite.common.files import whole_file
from sprite.protocol.archive import MANIFEST
from sprite.protocol.files import size_in_words

_MARKS = {"done": "✓", "failed": "✗"}
#: Separates a step from its details, such as the package being downloaded.
_DETAIL = ": "


class Steps:
    """`show(phase, message)` prints each step once; the last phase is "done" or "failed"."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._step = ""

    def __call__(self, phase: str, message: str) -> None:
        """Show the next step or the outcome."""
        step = message.partition(_DETAIL)[0].rstrip(".")
        if phase in _MARKS or step != self._step:
            self._stream.write(f"{_MARKS.get(phase, ' ')} {message}\n")
            self._stream.flush()
        self._step = step


_FAILED = 1
#: A first deploy creates a machine and installs packages. A restore also transfers all of the agent's files.
_LONGEST_SECONDS = 3600.0


class _Step(msgspec.Struct):
    phase: str
    words: str


async def follow_steps(session: aiohttp.ClientSession, path: str, query: Mapping[str, str] | None = None) -> int:
    """Request a deploy or a restore and show its steps. Return the exit status.

    Raise ControlError if the bridge refuses or the answer is cut off.
    """
    last = _Step("failed", "The bridge stopped before this was finished.")
    try:
        async with asyncio.timeout(_LONGEST_SECONDS), session.post(path, params=query) as response:
            if not response.ok:
                raise ControlError((await response.json())["error"]["message"])
            show = Steps()
            async for line in response.content:
                last = msgspec.json.decode(line, type=_Step)
                show(last.phase, last.words)
    except (aiohttp.ClientError, TimeoutError) as error:
        raise ControlError(last.words) from error
    return 0 if last.phase == "done" else _FAILED


_CHUNK_BYTES = 1 << 18
#: A sleeping VM is woken and updated before the first byte arrives.
_SILENT_SECONDS = 1800.0


def _add_replica(parser: argparse.ArgumentParser) -> None:
    """Add the options that `export` and `restore` share."""
    words = "time of the replica to use: 2026-11-22T10:30 (in UTC unless it names a zone)"
    parser.add_argument("--as-of", metavar="TIME", type=moment, help=words)
    parser.add_argument(
        "--leave-out-damaged",
        action="store_true",
        help="continue if turns or other rows of the replica are damaged, and leave them out (damaged "
        "files are always left out and named)",
    )
    add_provider(parser)


def _query(arguments: argparse.Namespace, **more: str | None) -> dict[str, str]:
    """Return the query for the control socket, without the options that were not given."""
    as_of = None if arguments.as_of is None else str(arguments.as_of)
    leave_out = "1" if arguments.leave_out_damaged else None
    asked = {"as_of": as_of, "leave_out_damaged": leave_out, **more}
    return {name: text for name, text in asked.items() if text}


def add_export_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `export`."""
    parser.epilog = (
        "The archive is plain text (docs/archive.md); `python -m sprite import FILE` makes a workspace of it."
    )
    add_person(parser, "the person whose agent to export; your own agent on this machine is `local`")
    parser.add_argument("file", metavar="FILE", nargs="?", help="file to write (default: NAME.zip)")
    parser.add_argument("--force", action="store_true", help="replace FILE if it exists")
    parser.add_argument(
        "--from",
        dest="source",
        choices=("machine", "store"),
        help="machine: the agent's current state, which may wake its machine; store: the bridge's replica "
        "(default: the machine if it is awake, else the store)",
    )
    _add_replica(parser)
    parser.set_defaults(work=_export)


async def _export(settings: Settings, arguments: argparse.Namespace) -> int:
    name, path = arguments.name, Path(arguments.file or f"{arguments.name}.zip")
    query = _query(arguments, **{"from": arguments.source})
    show = Steps(sys.stderr)
    with whole_file(path, force=arguments.force, error=ControlError) as stream:
        show("connecting", f"Exporting {name}'s agent.")
        async with bridge_or_folder(settings) as session:
            left_out = await _received(session, f"/export/{name}", query, stream, show)
        size = size_in_words(stream.tell())
        _refuse_partial(stream)
    show("done", f"Exported {name}'s agent to {path}, which only you can read ({size}). {left_out}".rstrip())
    return 0


async def _received(
    session: aiohttp.ClientSession, path: str, query: Mapping[str, str], stream: BinaryIO, show: Steps
) -> str:
    """Write the archive to `stream` as it arrives; return a message about left-out parts. Raise ControlError."""
    timeout = aiohttp.ClientTimeout(total=None, sock_read=_SILENT_SECONDS)
    try:
        async with session.get(path, params=query, timeout=timeout) as response:
            if not response.ok:
                raise ControlError((await response.json())["error"]["message"])
            if (at := response.headers.get(AS_OF)) is not None:
                age = ago(float(at), time.time())
                show("connecting", f"It was made from the replica as of {moment_words(float(at))} ({age}).")
            async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
                stream.write(chunk)
                show("connecting", f"Receiving the archive: {size_in_words(stream.tell())}")
            return unquote(response.headers.get(LEFT_OUT, ""))
    except (aiohttp.ClientError, TimeoutError) as error:
        raise ControlError("The archive was incomplete and was deleted. The bridge's log may say why.") from error


def _refuse_partial(stream: BinaryIO) -> None:
    """Raise ControlError unless the archive's last entry is present. An import checks every byte."""
    try:
        with zipfile.ZipFile(stream) as archive:
            if archive.namelist()[-1:] == [MANIFEST]:
                return
    except (zipfile.BadZipFile, OSError):
        pass
    raise ControlError("The archive arrived incomplete and was deleted. Try again.")


def add_restore_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `restore`."""
    parser.epilog = (
        "An existing agent is replaced only with --over. It is then moved aside, never deleted. "
        "After an interruption, run the same command again to finish."
    )
    add_person(parser, "the person whose agent to restore; your own agent on this machine is `local`")
    parser.add_argument("--over", action="store_true", help="replace an existing agent, which is moved aside")
    _add_replica(parser)
    parser.set_defaults(work=_restore)


async def _restore(settings: Settings, arguments: argparse.Namespace) -> int:
    query = _query(arguments, over="1" if arguments.over else None)
    async with bridge_or_folder(settings) as session:
        return await follow_steps(session, f"/restore/{arguments.name}", query)
