"""Control socket of a running bridge, for its owner's programs on the same machine: a Unix socket only they can open.

`DATA/run/bridge.sock`, mode 0600 in a folder of mode 0700. It requires no token, so none is on disk; instead it checks
that the program is not an agent's (`refusal`). It speaks HTTP: `operator_api` has the routes. An error is
`{"error": {"code", "message"}}`; the message is for people.
"""

import asyncio
import os
import select
import shutil
import socket
import struct
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import aiohttp

from bridge.errors import BridgeError
from sprite.common.orphans import adopts

#: The kernel's limit for the path of a Unix socket is 108 bytes (104 elsewhere), including its terminator.
_LONGEST_PATH = 100
_CONNECT_SECONDS = 5.0
_BASE_URL = "http://bridge"


class ControlError(BridgeError):
    """The running bridge refuses a request, or no bridge runs; the message is for people."""


class NoBridgeError(ControlError):
    """No bridge runs on this data folder."""


def socket_of(run: Path) -> Path:
    """Return the path of the socket; if the folder's path is too long for a socket, a symlink points to it."""
    path = run / "bridge.sock"
    return path.readlink() if path.is_symlink() else path


@contextmanager
def listening_socket(run: Path) -> Iterator[socket.socket]:
    """Yield the listening socket and remove it at the end. The caller owns the folder: an existing socket is stale."""
    path = run / "bridge.sock"
    _remove(path)
    if len(os.fsencode(path)) > _LONGEST_PATH:
        # A folder of mode 0700 with a short name.
        path.symlink_to(Path(tempfile.mkdtemp(prefix="bridge-")) / "sock")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Before chmod the folder guards it: only our user can enter.
        listener.bind(str(socket_of(run)))
        socket_of(run).chmod(0o600)
        listener.listen(128)
        listener.setblocking(False)
        yield listener
    finally:
        listener.close()
        _remove(path)


def _remove(path: Path) -> None:
    if path.is_symlink():
        shutil.rmtree(path.readlink().parent, ignore_errors=True)
    path.unlink(missing_ok=True)


@asynccontextmanager
async def control_session(run: Path, **options: Any) -> AsyncIterator[aiohttp.ClientSession]:
    """Yield an HTTP session to the running bridge; `options` are aiohttp's. Raise NoBridgeError if none answers."""
    path = socket_of(run)
    try:
        async with asyncio.timeout(_CONNECT_SECONDS):
            _, writer = await asyncio.open_unix_connection(str(path))
            writer.close()
    except (OSError, TimeoutError) as error:
        raise NoBridgeError(f"No bridge answers on {run.parent}. Start one with `python -m bridge serve`.") from error
    # A session is long (a chat); callers bound its requests.
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS)
    async with aiohttp.ClientSession(
        _BASE_URL, connector=aiohttp.UnixConnector(str(path)), timeout=timeout, **options
    ) as session:
        yield session


async def ask(
    session: aiohttp.ClientSession, method: str, path: str, body: object = None, *, seconds: float = 30.0
) -> Any:
    """Send a request to the control socket and return the JSON answer. Raise ControlError with the bridge's message."""
    try:
        async with asyncio.timeout(seconds), session.request(method, path, json=body) as response:
            answer = await response.json()
            if not response.ok:
                raise ControlError(answer["error"]["message"])
            return answer
    except (aiohttp.ClientError, TimeoutError) as error:
        raise ControlError("The bridge stopped answering.") from error


AGENTS: Final = (
    "The control socket does not answer programs of an agent, nor those in a container or sandbox of their own. Run "
    "this in your own terminal, as the bridge's user."
)
OTHERS: Final = "The control socket answers only the bridge's own user."

_PROC: Final = Path("/proc")
#: socket(7), unix(7): credentials of the process that called connect(). Python names neither; the second is in Linux
#: 6.5 and newer.
_SOL_SOCKET, _SO_PEERCRED, _SO_PEERPIDFD = 1, 17, 77
_CREDENTIALS: Final = struct.Struct("iII")
#: The command line with which providers/child.py and people start a sprite.
_SPRITE: Final = b"\0-m\0sprite\0serve\0"
#: Environment that an agent's programs inherit, with a folder in some workspace (sprite/agent/conversation.py).
_AGENT_FOLDER: Final = (b"CLAUDE_CONFIG_DIR=", b"/.os/run/claude")


def refusal(connection: socket.socket) -> str | None:
    """Return why the connected program is refused, as a message for people, or None if it is not."""
    if sys.platform != "linux":
        return None
    pid, user, _ = _CREDENTIALS.unpack(connection.getsockopt(_SOL_SOCKET, _SO_PEERCRED, _CREDENTIALS.size))
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
    if any(has(pid) and not has(us) for has in (_has_no_new_privileges, _has_agents_environment)):
        return True
    # A bridge that an agent runs answers that agent's programs. Its sprites' detached programs are below it.
    ours, line = set(_line(us)), list(_line(pid))
    commands = ((_PROC / str(each) / "cmdline").read_bytes() for each in line if each not in ours)
    return (us in line and adopts()) or any(_SPRITE in command for command in commands)


def _line(pid: int) -> Iterator[int]:
    """Yield the ids of a process and of its ancestors."""
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


def _lives(connection: socket.socket) -> bool:
    """Return whether the process that opened the connection still runs; True where the kernel cannot tell."""
    with suppress(OSError):
        descriptor = connection.getsockopt(_SOL_SOCKET, _SO_PEERPIDFD)
        try:
            ended = select.poll()
            ended.register(descriptor, select.POLLIN)
            return not ended.poll(0)
        finally:
            os.close(descriptor)
    return True
