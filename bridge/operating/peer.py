"""Identify the program at the other end of the control socket (on Linux; elsewhere only the socket's mode protects it).

An agent on this machine runs as the bridge's own user, so the mode alone does not exclude its programs. They are in
their own user namespace. Where the machine allows none, they descend from a sprite; detached ones have the agent's
environment, and in `ask` mode cannot gain privileges.
"""

from __future__ import annotations

import os
import select
import struct
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

AGENTS: Final = (
    "The control socket does not answer programs of an agent, nor those in a container or sandbox of their own. Run "
    "this in your own terminal, as the bridge's user."
)
OTHERS: Final = "The control socket answers the bridge's own user only."

_PROC: Final = Path("/proc")
#: socket(7), unix(7): credentials of the process that called connect(). Python names neither; the second is in Linux
#: 6.5 and newer.
_SOL_SOCKET, _SO_PEERCRED, _SO_PEERPIDFD = 1, 17, 77
_CREDENTIALS: Final = struct.Struct("iII")
#: The command line with which hosts/child.py and people start a sprite.
_SPRITE: Final = b"\0-m\0sprite\0serve\0"
#: Environment that an agent's programs inherit, with a folder in some workspace (sprite/agent/conversation.py).
_AGENT_FOLDER: Final = (b"CLAUDE_CONFIG_DIR=", b"/.os/run/claude")


class Connection(Protocol):
    """The part of a socket that is used here; asyncio exposes no more of it."""

    def getsockopt(self, level: int, name: int, size: int = 0, /) -> int | bytes:
        """See socket.getsockopt."""


def refusal(connection: Connection) -> str | None:
    """Return why the connected program is refused, as a message for people; None if it is not."""
    if sys.platform != "linux":
        return None
    credentials = connection.getsockopt(_SOL_SOCKET, _SO_PEERCRED, _CREDENTIALS.size)
    pid, user, _ = _CREDENTIALS.unpack(bytes(credentials))
    if user != os.geteuid():
        return OTHERS
    try:
        started = _stat(pid)[1]
        is_agents = _is_agents(pid)
        # Otherwise the process id may have been reused.
        is_same = _lives(connection) and _stat(pid)[1] == started
    except (OSError, ValueError, IndexError):
        # The process is gone, or in a process namespace that is invisible from here.
        return AGENTS
    return AGENTS if is_agents or not is_same else None


def _is_agents(pid: int) -> bool:
    """Return whether a process belongs to an agent. Raise OSError if the kernel denies the check."""
    us = os.getpid()
    if pid == us:
        return False
    if _namespace(pid) != _namespace(us):
        return True
    if _has_no_new_privileges(pid) and not _has_no_new_privileges(us):
        return True
    if _has_agents_environment(pid) and not _has_agents_environment(us):
        return True
    # A bridge that an agent runs answers that agent's programs.
    ours = set(_line(us))
    return any(_is_sprite(each) for each in _line(pid) if each not in ours)


def _line(pid: int) -> Iterator[int]:
    """Yield a process and its ancestors."""
    seen = set[int]()
    while pid and pid not in seen:
        seen.add(pid)
        yield pid
        pid = _stat(pid)[0]


def _stat(pid: int) -> tuple[int, int]:
    """Return the parent and the start time of a process (proc(5))."""
    # "pid (name) state parent ...": the name may contain anything, including parentheses.
    fields = (_PROC / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
    return int(fields[1]), int(fields[19])


def _namespace(pid: int) -> tuple[int, int]:
    found = (_PROC / str(pid) / "ns/user").stat()
    return found.st_dev, found.st_ino


def _has_no_new_privileges(pid: int) -> bool:
    return b"\nNoNewPrivs:\t1\n" in (_PROC / str(pid) / "status").read_bytes()


def _has_agents_environment(pid: int) -> bool:
    name, folder = _AGENT_FOLDER
    variables = (_PROC / str(pid) / "environ").read_bytes().split(b"\0")
    return any(variable.startswith(name) and variable.endswith(folder) for variable in variables)


def _is_sprite(pid: int) -> bool:
    return _SPRITE in (_PROC / str(pid) / "cmdline").read_bytes()


def _lives(connection: Connection) -> bool:
    """Return whether the process that connected still runs; True where the kernel cannot tell."""
    with suppress(OSError):
        descriptor = connection.getsockopt(_SOL_SOCKET, _SO_PEERPIDFD)
        assert isinstance(descriptor, int)  # noqa: S101 - no size was given
        try:
            ended = select.poll()
            ended.register(descriptor, select.POLLIN)
            return not ended.poll(0)
        finally:
            os.close(descriptor)
    return True
