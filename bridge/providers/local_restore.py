"""Create a workspace on this machine from an archive, and put it in place by renames.

The first rename decides. After an interruption the next lookup of the workspace finishes the other renames; the
earlier workspace is never deleted.
"""

from __future__ import annotations

import asyncio
import contextlib
import glob
import shutil
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.providers.provider import HostError
from bridge.providers.vm_scripts import last_lines
from sprite.common.files import sync

if TYPE_CHECKING:
    from bridge.providers.provider import Report


#: The folder from which `python -m sprite` imports the package.
_ROOT = Path(__file__).resolve().parents[2]
_CHUNK_BYTES = 1 << 18
_KEPT_BYTES = 8_000


async def program_output(arguments: Sequence[str], environment: Mapping[str, str]) -> AsyncIterator[bytes]:
    """Yield the stdout of `python -m sprite ARGUMENTS`. Raise HostError with its last words if it fails.

    Closing the generator kills the process.
    """
    # A file takes any amount of stderr; a pipe would have to be drained.
    with tempfile.TemporaryFile() as said:
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "sprite",
                *arguments,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=said,
                env=dict(environment),
                cwd=_ROOT,
                start_new_session=True,
            )
        except OSError as error:
            raise HostError(f"The sprite's command cannot be started ({error.strerror}).") from error
        try:
            while process.stdout is not None and (chunk := await process.stdout.read(_CHUNK_BYTES)):
                yield chunk
            if await process.wait():
                said.seek(max(0, said.tell() - _KEPT_BYTES))
                words = last_lines(said.read().decode(errors="replace"))
                raise HostError(f"It failed, and said:\n{words}", retryable=False)
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def make_aside(workspace: Path, archive: Path, environment: Mapping[str, str], report: Report) -> Path:
    """Create a workspace from an archive beside the existing one, and return its path.

    On HostError nothing is left of it. Leftovers of killed bridges are removed.
    """
    report("updating", "Making a workspace of what is kept.")
    await asyncio.to_thread(sweep, workspace)
    # No sprite can have this name.
    new = workspace.with_name(f"{_under_way(workspace)}{uuid.uuid4()}")
    try:
        workspace.parent.mkdir(parents=True, exist_ok=True)
        async for _ in program_output(["import", str(archive), "--workspace", str(new)], environment):
            pass
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise
    return new


def sweep(workspace: Path) -> None:
    """Remove the unfinished workspaces of killed bridges. The caller ensures that none is being created now.

    The import of a killed bridge may still write into its folder; the rest is removed the next time.
    """
    for left in list(workspace.parent.glob(f"{glob.escape(_under_way(workspace))}*")):
        shutil.rmtree(left, ignore_errors=True)


def put_in_place(workspace: Path, new: Path) -> str:
    """Make the new workspace the current one; return where the earlier one was moved, "" if there was none."""
    new.replace(_decided(workspace))
    sync(workspace.parent)
    return finish(workspace)


def finish(workspace: Path) -> str:
    """Finish an interrupted restore that was already decided, if there is one; return like `put_in_place`."""
    if not _decided(workspace).exists():
        return ""
    aside = None
    # An empty folder is not worth keeping.
    with contextlib.suppress(OSError):
        workspace.rmdir()
    if workspace.exists():
        aside = workspace.with_name(f"{workspace.name}.before-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}")
        workspace.rename(aside)
    _decided(workspace).rename(workspace)
    sync(workspace.parent)
    return "" if aside is None else str(aside)


def _under_way(workspace: Path) -> str:
    return f".{workspace.name}.restoring-"


def _decided(workspace: Path) -> Path:
    return workspace.with_name(f".{workspace.name}.restored")
