"""Detached programs of an agent: this process adopts them, to find and end them without a sandbox (Linux)."""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37
_LOOK_SECONDS = 10.0


def adopts() -> bool:
    """Return whether orphaned processes below this one become its children."""
    if sys.platform != "linux":
        return False
    is_adopting = ctypes.c_int()
    ctypes.CDLL(None).prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(is_adopting), 0, 0, 0)
    return bool(is_adopting.value)


@asynccontextmanager
async def adopting() -> AsyncIterator[None]:
    """Adopt orphaned processes below this one from now on; while the block runs, collect those that have ended."""
    if sys.platform != "linux":
        yield
        return
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    collecting = asyncio.create_task(_collect(), name="orphans")
    try:
        yield
    finally:
        collecting.cancel()
        with suppress(asyncio.CancelledError):
            await collecting


async def _collect() -> None:
    left = set[int]()
    while True:
        await asyncio.sleep(_LOOK_SECONDS)
        left = await asyncio.to_thread(_collected, left)


def _collected(left: set[int]) -> set[int]:
    """Collect the ended children that were already uncollected at the last look (`left`).

    Return the ended children that are uncollected now. The code that started a child normally collects it first.
    """
    try:
        if not os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return set()
    except ChildProcessError:
        return set()
    ended = {int(place.name) for place in Path("/proc").glob("[0-9]*") if _is_ended_child(place)}
    for pid in ended & left:
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)
    return ended - left


def _is_ended_child(place: Path) -> bool:
    try:
        state, parent, *_ = (place / "stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return False
    return state == b"Z" and int(parent) == os.getpid()
