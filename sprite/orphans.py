"""Ending what a killed sprite left behind: its CLI goes on with the turn, unseen and unrecorded.

Two CLIs in one conversation would write over each other. Needs Linux's /proc, as on the VM; on other systems
an orphan lives until its turn ends.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path

log = logging.getLogger(__name__)

PROC = Path("/proc")
CLI_NAME = "claude"


def end_orphans(config_dir: Path) -> int:
    """Kills every CLI that keeps its state in `config_dir`, and what it is running; returns how many.

    Only the owner of the workspace's lock may call this: then no such CLI can be anybody's. A program that the
    agent has detached from its CLI is no child of it, and stays.
    """
    parents = dict(_parents())
    orphans = [pid for pid in parents if _is_cli_of(pid, config_dir)]
    for pid in orphans:
        log.warning("process %d, the agent's of an earlier sprite, is still there and is ended", pid)
        for member in (pid, *_below(pid, parents)):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(member, signal.SIGKILL)
    return len(orphans)


def _parents() -> Iterator[tuple[int, int]]:
    """Every process with its parent."""
    for entry in PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            # "pid (name) state parent ...": the name may hold anything, parentheses too.
            yield int(entry.name), int((entry / "stat").read_bytes().rpartition(b")")[2].split()[1])


def _is_cli_of(pid: int, config_dir: Path) -> bool:
    try:
        # A binary that an update has replaced reads "claude (deleted)".
        program = (PROC / str(pid) / "exe").readlink().name.split(" ")[0]
        if program != CLI_NAME:
            return False
        environment = (PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"CLAUDE_CONFIG_DIR=" + os.fsencode(config_dir) in environment


def _below(pid: int, parents: dict[int, int]) -> Iterator[int]:
    for child, parent in parents.items():
        if parent == pid:
            yield child
            yield from _below(child, parents)
