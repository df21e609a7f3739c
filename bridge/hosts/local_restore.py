"""A workspace on this machine that is made anew of an archive: aside, and put in its place by renames.

The first rename decides. Cut off after it, whoever looks for the workspace next finishes what is left to move; what was
there before is never deleted.
"""

from __future__ import annotations

import asyncio
import contextlib
import glob
import shutil
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.hosts.program import program_output
from sprite.protocol.whole_file import sync

if TYPE_CHECKING:
    from bridge.hosts.host import Report


async def make_aside(workspace: Path, archive: Path, environment: Mapping[str, str], report: Report) -> Path:
    """Makes a workspace of an archive beside the one that is there, and returns it.

    HostError, and then nothing is left of it. What a bridge that was killed left behind goes.
    """
    report("updating", "Making a workspace of what is kept.")
    await asyncio.to_thread(sweep, workspace)
    # No sprite has such a name.
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
    """Removes what bridges that were killed had begun to make. The caller sees to it that nobody makes one now.

    The import of such a bridge may still write into its own: what is left then goes the next time.
    """
    for left in list(workspace.parent.glob(f"{glob.escape(_under_way(workspace))}*")):
        shutil.rmtree(left, ignore_errors=True)


def put_in_place(workspace: Path, new: Path) -> str:
    """What was made aside is the workspace from here on; returns where the earlier one is, "" if there was none."""
    new.replace(_decided(workspace))
    sync(workspace.parent)
    return finish(workspace)


def finish(workspace: Path) -> str:
    """Ends a restore that was cut off after it was decided, if there is one; returns as `put_in_place`."""
    if not _decided(workspace).exists():
        return ""
    aside = None
    # An empty folder is nothing to keep.
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
