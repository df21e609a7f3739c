"""Leftovers of the agent's CLI: processes of a killed sprite, and files of ended sessions."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
import signal
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from sprite.common.orphans import adopts

log = logging.getLogger(__name__)

PROC = Path("/proc")
CLI_NAME = "claude"
#: Folder in the CLI's state for the file that each of its shells reads first.
SNAPSHOTS = "shell-snapshots"
#: Time for commands to clean up after SIGTERM (a killed shell leaves its lock files behind).
GRACE_SECONDS = 2.0
_POLL_SECONDS = 0.02
#: Flag of the kernel's own threads (PF_KTHREAD in include/linux/sched.h).
_KERNEL_THREAD = 0x00200000


@dataclass(frozen=True, slots=True)
class _Process:
    """A process. Its start time distinguishes it from a later process with the same id."""

    pid: int
    parent: int
    started: int


def end_orphans(config_dir: Path) -> None:
    """Kill every CLI with its state in `config_dir`, and all that it started. Call it holding the workspace's lock."""
    processes = list(_processes())
    orphans = [process for process in processes if _is_cli_of(process.pid, config_dir)]
    # Search by parent, too, while the parents live: a program may run with another environment.
    left = {*_programs(config_dir, processes), *(child for orphan in orphans for child in _below(orphan, processes))}
    for orphan in orphans:
        log.warning("process %d, the agent's of an earlier sprite, is still there and is ended", orphan.pid)
        # SIGKILL at once; otherwise it would continue its turn when its command ends.
        _send(orphan, signal.SIGKILL)
    for process in _from_the_top(left):
        _send(process, signal.SIGTERM)
    if left:
        asyncio.get_running_loop().call_later(GRACE_SECONDS, _end_the_deaf, left)


async def end_commands(config_dir: Path) -> None:
    """End the commands in the shells of a CLI that is gone. Call only while no such CLI runs."""
    await _end(lambda: set(_commands(config_dir, list(_processes()))))


async def end_programs(config_dir: Path) -> None:
    """End all programs that the CLIs of a stopping sprite started, including detached and adopted ones."""
    await _end(lambda: {*_programs(config_dir, processes := list(_processes())), *_adopted(processes)})


def is_stopped(pid: int) -> bool:
    """Return whether a process, or the CLI inside it if it is a sandbox, was stopped (SIGSTOP)."""
    try:
        is_sandbox = (PROC / f"{pid}/comm").read_text().strip() == "bwrap"
        children = (PROC / f"{pid}/task/{pid}/children").read_text().split() if is_sandbox else []
        return _fields(pid)[0] == b"T" or any(is_stopped(int(child)) for child in children)
    except OSError:
        return False


async def _end(find: Callable[[], set[_Process]]) -> None:
    """Send SIGTERM, then SIGKILL, to what `find` returns, until none is left: ending programs may start more."""
    loop = asyncio.get_running_loop()
    ends = loop.time() + GRACE_SECONDS
    told: set[_Process] = set()
    # In a thread: scanning all processes would block the event loop.
    while True:
        is_searched, found = True, set[_Process]()
        try:
            found = await asyncio.to_thread(find)
        except OSError as error:
            # Without descriptors nothing can be searched. The error must not hide the one that stops the sprite.
            log.warning("the agent's programs cannot be searched: %s", error.strerror)
            is_searched = False
        left = {process for process in told | found if _is_there(process)}
        if is_searched and not left:
            return
        if loop.time() > ends:
            _end_the_deaf(left)
            return
        for process in _from_the_top(left - told):
            _send(process, signal.SIGTERM)
        told |= left
        await asyncio.sleep(_POLL_SECONDS)


def _from_the_top(processes: Iterable[_Process]) -> list[_Process]:
    """Sort parents first: a shell whose command ends first would start the next one."""
    return sorted(processes, key=lambda process: (process.started, process.pid))


def _end_the_deaf(processes: Iterable[_Process]) -> None:
    for process in processes:
        _send(process, signal.SIGKILL)


def _is_there(process: _Process) -> bool:
    found = _read(process.pid)
    return found is not None and found.started == process.started


def _send(process: _Process, number: signal.Signals) -> None:
    if _is_there(process):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(process.pid, number)


def _processes() -> Iterator[_Process]:
    for entry in PROC.glob("[0-9]*"):
        process = _read(int(entry.name))
        if process is not None:
            yield process


def _fields(pid: int) -> list[bytes]:
    """Return the fields of /proc/PID/stat from the process's state on (proc(5)). Raise OSError if it is gone."""
    # "pid (name) state parent ...": the name may contain anything, including parentheses.
    return (PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()


def _read(pid: int) -> _Process | None:
    try:
        fields = _fields(pid)
    except OSError:
        return None
    # A zombie that its parent has not collected counts as gone.
    if fields[0] == b"Z" or int(fields[6]) & _KERNEL_THREAD:
        return None
    return _Process(pid, int(fields[1]), int(fields[19]))


def _is_cli_of(pid: int, config_dir: Path) -> bool:
    try:
        # A binary that an update has replaced reads "claude (deleted)".
        program = (PROC / str(pid) / "exe").readlink().name.partition(" ")[0]
    except OSError:
        return False
    return program == CLI_NAME and _has_state_in(config_dir, pid)


def _has_state_in(config_dir: Path, pid: int) -> bool:
    """Return whether a process is a CLI with its state in `config_dir`, or inherited its environment."""
    try:
        environment = (PROC / str(pid) / "environ").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"CLAUDE_CONFIG_DIR=" + os.fsencode(config_dir) in environment


def _programs(config_dir: Path, processes: list[_Process]) -> Iterator[_Process]:
    """Yield the CLIs with their state in `config_dir` and all that they started, except this process's ancestors."""
    # An agent may have started this process.
    ours = _line_of(os.getpid(), processes)
    for process in processes:
        if process.pid not in ours and _has_state_in(config_dir, process.pid):
            yield process
            yield from _below(process, processes)


def _adopted(processes: list[_Process]) -> Iterator[_Process]:
    """Yield all descendants of this process, if it adopts orphans."""
    # A stopping sprite has ended its own children, so the rest are the agent's.
    if adopts():
        yield from (each for each in processes if os.getpid() in _line_of(each.parent, processes))


def _line_of(pid: int, processes: list[_Process]) -> set[int]:
    """Return the ids of a process and its ancestors."""
    parents = {process.pid: process.parent for process in processes}
    line = set()
    while pid in parents and pid not in line:
        line.add(pid)
        pid = parents[pid]
    return line


def _commands(config_dir: Path, processes: list[_Process]) -> Iterator[_Process]:
    """Yield the shells in which a CLI runs commands, known by the file that each reads first, and their children."""
    snapshots = os.fsencode(config_dir / SNAPSHOTS) + b"/"
    for process in processes:
        with contextlib.suppress(OSError):
            if snapshots in (PROC / str(process.pid) / "cmdline").read_bytes():
                yield process
                yield from _below(process, processes)


def _below(process: _Process, processes: list[_Process]) -> Iterator[_Process]:
    for child in processes:
        if child.parent == process.pid:
            yield child
            yield from _below(child, processes)


#: The CLI's own settings: versions and switches, no conversation.
_OWN_SETTINGS = ".claude.json"


def clear_cli_files(folder: Path) -> None:
    """Delete everything in the folder. Call only while no CLI keeps its state there."""
    if _is_behind_link(folder):
        return
    shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        log.warning("%s could not be deleted whole; what was said in ended sessions may still be in it", folder)


def keep_cli_session(folder: Path, cli_session_id: str) -> None:
    """Delete all files of other sessions than the one that will be resumed. Call only while no such CLI runs."""
    if _is_behind_link(folder):
        return
    for parent, folders, names in os.walk(folder):
        links = (name for name in folders if Path(parent, name).is_symlink())
        for path in [Path(parent, name) for name in (*names, *links)]:
            own = any(part.startswith(cli_session_id) for part in path.relative_to(folder).parts)
            if own or path.name == _OWN_SETTINGS:
                continue
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                log.warning("a file of an ended session could not be deleted: %s", error)


def _is_behind_link(folder: Path) -> bool:
    """Return whether the folder, or one above it, is now a link made by the agent: then its files are not the CLI's."""
    if not any(place.is_symlink() for place in (folder, *folder.parents[:2])):
        return False
    log.warning("%s is reached through a link, and nothing in it is deleted", folder)
    return True
