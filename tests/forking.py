"""Processes under test, forked from a parent that has imported both programs: a start takes milliseconds.

`python -m tests.forking SOCKET_FD LISTENER_FD` is that parent. Each test process has one, made on demand: the first
worker of a run starts its own, and those of the other workers are forked from it. The listener serves these workers,
and fork_client.py.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import ctypes
import gc
import hashlib
import json
import os
import resource
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from functools import cache, partial
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

from tests.hidden_settings import read_hidden_settings
from tests.in_thread import PATIENCE
from tests.shifted_clock import follow_clock, replace_time

ROOT = Path(__file__).resolve().parent.parent
_LENGTH_BYTES = 4
#: All imports of the programs and their commands, also lazy ones.
_IMPORTS = (
    "sprite.__main__ sprite.server sprite.agent.options sprite.cli.memory sprite.cli.rebuild "
    "sprite.cli.import_logs sprite.cli.archives sprite.cli.mcp_server "
    "bridge.__main__ bridge.app bridge.commands.serve bridge.commands.operate "
    "claude_agent_sdk anyio._backends._asyncio httpcore2 encodings.idna tomllib"
).split()
#: Imports of rarely tested commands: imported before the first of them is forked.
_LATE_IMPORTS = {"acp": ["bridge.acp.program"], "chat": ["bridge.terminal.client", "bridge.terminal.terminal"]}
#: A forked process writes its arguments and its environment over these, where /proc shows them.
_ARGUMENTS_BYTES = 1 << 13
_ENVIRONMENT_BYTES = 1 << 16
#: Replaces the module name when another worker requests a parent.
_PARENT = "parent"
#: Prefix of a "module" that is code.
_CODE = "-c "
#: For a process whose `sys.executable` is to be this one.
PYTHON = "TESTS_PYTHON"
_PYTHON = """#!/bin/sh
case "$1 $2" in
  "-m sprite" | "-m bridge") shift; exec {client} "$@" ;;
esac
exec "{python}" "$@"
"""


class ForkedProcess:
    """The part of asyncio's Process that tests use, for a forked process."""

    def __init__(self, pid: int, ended: Future[int], streams: dict[str, Any]) -> None:
        self.pid = pid
        self._ended = ended
        self.stdin: asyncio.StreamWriter | None = streams.get("stdin")
        self.stdout: asyncio.StreamReader | None = streams.get("stdout")
        self.stderr: asyncio.StreamReader | None = streams.get("stderr")
        self._transports: list[asyncio.BaseTransport] = streams["transports"]

    @property
    def returncode(self) -> int | None:
        """Return the exit status, negative for a signal, None while it runs."""
        return self._ended.result() if self._ended.done() else None

    def send_signal(self, number: int) -> None:
        """Send a signal, if it still runs."""
        if not self._ended.done():
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)

    async def wait(self) -> int:
        """Wait for its end; return the exit status."""
        code = await asyncio.shield(asyncio.wrap_future(self._ended))
        for transport in self._transports:
            if self.stdout is None or self.stdout.at_eof():
                transport.close()
        return code

    async def communicate(self) -> tuple[bytes, bytes]:
        """Read both streams to their end, and wait."""
        read = [stream.read() if stream else _nothing() for stream in (self.stdout, self.stderr)]
        out, err = await asyncio.gather(*read)
        await self.wait()
        return out, err


async def _nothing() -> bytes:
    return b""


class _Parent:
    """This process's end of the forking parent."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        self._folder = tempfile.mkdtemp(prefix="forking-")
        self.address = f"{self._folder}/socket"
        #: The address of the first parent of a run.
        self._link: Path | None = None
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(self.address)
        listener.listen(100)
        #: A Python that forks sprites and bridges, for callers that start `PYTHON -m sprite`.
        self.python = Path(self._folder) / "python"
        client = f'"{sys.executable}" -I -S "{Path(__file__).with_name("fork_client.py")}" "{self.address}"'
        self.python.write_text(_PYTHON.format(python=sys.executable, client=client))
        self.python.chmod(0o755)
        descriptors = [theirs.fileno(), listener.fileno()]
        #: The process, or the connection on which the first worker's parent was asked for it.
        self._process = self._fork(descriptors) or self._start(descriptors)
        theirs.close()
        listener.close()
        self._socket = ours
        self._asking = threading.Lock()
        self._started: Future[tuple[int, Future[int]]] = Future()
        self._children: dict[int, Future[int]] = {}
        threading.Thread(target=self._listen, name="forking", daemon=True).start()

    def start(self, request: dict[str, Any], descriptors: Sequence[int]) -> tuple[int, Future[int]]:
        """Fork a process; return its pid, and the future of its exit status."""
        data = json.dumps(request).encode()
        with self._asking:
            self._started = Future()
            self._socket.sendmsg(
                [len(data).to_bytes(_LENGTH_BYTES, "big")],
                [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))],
            )
            self._socket.sendall(data)
            return self._started.result(PATIENCE)

    def _first_of_run(self) -> str:
        """Return the address of the first parent of this run's workers, or this one's if there was none."""
        if "PYTEST_XDIST_WORKER" not in os.environ:
            return self.address
        # All of them are children of the same pytest.
        self._link = Path(tempfile.gettempdir()) / f"forking-{os.environ['PYTEST_XDIST_TESTRUNUID']}-{os.getppid()}"
        try:
            self._link.symlink_to(self.address)
        except FileExistsError:
            with contextlib.suppress(OSError):
                return str(self._link.readlink())
        return self.address

    def _fork(self, descriptors: Sequence[int]) -> socket.socket | None:
        """Ask the first worker's parent to fork this one; return None if there is no other."""
        first = self._first_of_run()
        if first == self.address:
            return None
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(PATIENCE)
        try:
            connection.connect(first)
            request = json.dumps({"module": _PARENT}).encode()
            socket.send_fds(connection, [len(request).to_bytes(_LENGTH_BYTES, "big")], descriptors)
            connection.sendall(request)
            if connection.recv(4096):
                return connection
        except OSError:
            # Its worker has ended.
            pass
        connection.close()
        return None

    def _start(self, descriptors: Sequence[int]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.forking", *map(str, descriptors), " " * _ARGUMENTS_BYTES],
            cwd=ROOT,
            env={**os.environ, "ROOM_FOR_AN_ENVIRONMENT": " " * _ENVIRONMENT_BYTES},
            pass_fds=descriptors,
            stdin=subprocess.DEVNULL,
        )

    def close(self) -> None:
        """End the parent."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        if isinstance(self._process, socket.socket):
            self._process.close()
        else:
            self._process.wait()
        with contextlib.suppress(OSError):
            if self._link is not None and str(self._link.readlink()) == self.address:
                self._link.unlink()
        self._socket.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _listen(self) -> None:
        with self._socket.makefile("rb") as stream:
            for line in stream:
                told = json.loads(line)
                if "started" in told:
                    # A short program may have ended before `start` returns.
                    ended = self._children[told["started"]] = Future()
                    self._started.set_result((told["started"], ended))
                else:
                    self._children.pop(told["ended"]).set_result(told["code"])


_parent: _Parent | None = None
_making = threading.Lock()


def _get_parent() -> _Parent:
    global _parent  # noqa: PLW0603 - one for the test process
    with _making:
        if _parent is None:
            _parent = _Parent()
        return _parent


def close_parent() -> None:
    """End this process's forking parent, if there is one."""
    global _parent  # noqa: PLW0603
    with _making:
        if _parent is not None:
            _parent.close()
            _parent = None


def forking_address() -> str:
    """Return the Unix socket for requests of fork_client.py."""
    return _get_parent().address


def forking_python() -> str:
    """Return a Python whose `-m sprite` and `-m bridge` are forked."""
    return str(_get_parent().python)


async def fork_code(code: str, *arguments: str, **options: Any) -> ForkedProcess:
    """Run `python -c CODE ARGUMENTS` in a forked process; see fork_module."""
    options.setdefault("env", dict(os.environ))
    return await fork_module(f"{_CODE}{code}", *arguments, **options)


async def fork_module(
    module: str,
    *arguments: str,
    env: Mapping[str, str],
    stdin: int | None = None,
    stdout: int | None = None,
    stderr: Any = None,
    cwd: Path = ROOT,
    open_files: int | None = None,
    umask: int | None = None,
) -> ForkedProcess:
    """Run `python -m MODULE ARGUMENTS` in a forked process. Streams are asyncio's: PIPE, DEVNULL, a file or None."""
    null = os.open(os.devnull, os.O_RDWR)
    given: list[int] = []
    ours: dict[str, int] = {}
    closing = [null]
    for name, stream in (("stdin", stdin), ("stdout", stdout), ("stderr", stderr)):
        if stream == subprocess.PIPE:
            readable, writable = os.pipe()
            theirs, mine = (readable, writable) if name == "stdin" else (writable, readable)
            ours[name] = mine
            closing.append(theirs)
            given.append(theirs)
        elif stream is None or stream == subprocess.DEVNULL:
            given.append(null)
        else:
            given.append(stream if isinstance(stream, int) else stream.fileno())
    request = {
        "module": module,
        "arguments": arguments,
        "environment": dict(env),
        "cwd": str(cwd),
        "open_files": open_files,
        "umask": umask,
    }
    pid, ended = await asyncio.to_thread(lambda: _get_parent().start(request, given))
    for descriptor in closing:
        os.close(descriptor)
    loop = asyncio.get_running_loop()
    streams: dict[str, Any] = {"transports": []}
    for name, descriptor in ours.items():
        pipe = os.fdopen(descriptor, "wb" if name == "stdin" else "rb", 0)
        if name == "stdin":
            writing, protocol = await loop.connect_write_pipe(asyncio.streams.FlowControlMixin, pipe)
            streams[name] = asyncio.StreamWriter(writing, protocol, None, loop)
            streams["transports"].append(writing)
        else:
            streams[name] = reader = asyncio.StreamReader(limit=64 * 2**20)
            reading, _ = await loop.connect_read_pipe(partial(asyncio.StreamReaderProtocol, reader), pipe)
            streams["transports"].append(reading)
    return ForkedProcess(pid, ended, streams)


class _Forking:
    """The parent's record of its children, and of their requesters."""

    def __init__(self, connection: socket.socket, listener: socket.socket) -> None:
        self._connection = connection
        self._listener = listener
        self._waking, self._wake = socket.socketpair()
        self._wake.setblocking(False)
        self._children: dict[int, socket.socket] = {}
        #: Each connection requests one child, and ends it by closing.
        self._clients: list[socket.socket] = []

    def serve(self) -> None:
        """Fork a child for each request, and report pids and exit statuses, until the test process ends."""
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        while True:
            asking = [self._connection, *self._clients]
            ready, _, _ = select.select([self._waking, self._listener, *asking], [], [])
            if self._waking in ready:
                self._waking.recv(4096)
                self._reap()
            if self._listener in ready:
                self._clients.append(self._listener.accept()[0])
            for one in asking:
                if one in ready and one.fileno() >= 0 and not self._hear(one):
                    return

    def _hear(self, asking: socket.socket) -> bool:
        """Handle a request. Return False at the end of the test process or of a child's program."""
        head, descriptors, _, _ = socket.recv_fds(asking, _LENGTH_BYTES, 3)
        if not head:
            for pid in [pid for pid, asked in self._children.items() if asked is asking is not self._connection]:
                os.kill(pid, signal.SIGKILL)
            self._forget(asking)
            return asking is not self._connection
        request = json.loads(_exactly(asking, int.from_bytes(head, "big")))
        if request["module"] == _PARENT:
            return self._fork_parent(asking, descriptors)
        folder = Path(request["cwd"])
        known = _known_sources() if folder != ROOT and (folder / "sprite").is_dir() else {}
        _import_late(request)
        pid = os.fork()
        if not pid:
            self._close()
            if asking is not self._connection:
                os.setsid()
            if known:
                _use_code_of(folder, known)
            _become(request, descriptors)
            return False
        self._children[pid] = asking
        for descriptor in descriptors:
            os.close(descriptor)
        _tell(asking, {"started": pid})
        return True

    def _fork_parent(self, asking: socket.socket, descriptors: Sequence[int]) -> bool:
        """Fork a parent for another worker, which requests nothing else on this connection."""
        pid = os.fork()
        if not pid:
            self._close()
            _Forking(*(socket.socket(fileno=number) for number in descriptors)).serve()
            return False
        self._children[pid] = asking
        for descriptor in descriptors:
            os.close(descriptor)
        _tell(asking, {"started": pid})
        return True

    def _close(self) -> None:
        for ours in (self._connection, self._listener, self._waking, self._wake, *self._clients):
            ours.close()

    def _forget(self, asking: socket.socket) -> None:
        if asking in self._clients:
            self._clients.remove(asking)
            asking.close()

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            asked = self._children.pop(pid)
            _tell(asked, {"ended": pid, "code": os.waitstatus_to_exitcode(status)})
            self._forget(asked)


def _import_late(request: dict[str, Any]) -> None:
    late = _LATE_IMPORTS.get(request["arguments"][0], []) if request["module"] == "bridge" else []
    if any(name not in sys.modules for name in late):
        for name in late:
            __import__(name)
        gc.freeze()


def _tell(asked: socket.socket, message: dict[str, Any]) -> None:
    with contextlib.suppress(OSError):
        asked.sendall(json.dumps(message).encode() + b"\n")


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += connection.recv(size - len(data))
    return data


def _sources(folder: Path) -> dict[str, bytes]:
    """Return the digests of a sprite's files, code and others, by name."""
    files = [path for path in (folder / "sprite").rglob("*") if path.is_file() and path.suffix != ".pyc"]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).digest() for path in files}


@cache
def _known_sources() -> dict[str, tuple[bytes, CodeType | None]]:
    """Return the digests of this checkout's sprite; its code is compiled."""
    return {
        name: (digest, SourceFileLoader("sprite", str(ROOT / name)).get_code("sprite") if name[-3:] == ".py" else None)
        for name, digest in _sources(ROOT).items()
    }


def _use_code_of(folder: Path, known: Mapping[str, tuple[bytes, CodeType | None]]) -> None:
    """Run a folder's code. Files equal to this checkout's are imported already, or at least compiled."""
    sys.path[0] = str(folder)
    sys.path_importer_cache.clear()
    theirs, ours = _sources(folder), {name: digest for name, (digest, _) in known.items()}
    # An archive has the requirements elsewhere.
    if theirs == {name: digest for name, digest in ours.items() if name in theirs or name.endswith(".py")}:
        return
    for name in [name for name in sys.modules if name.partition(".")[0] in {"sprite", "bridge", "tests"}]:
        del sys.modules[name]
    codes = dict(known.values())
    compiled = SourceFileLoader.source_to_code

    def source_to_code(loader: SourceFileLoader, data: bytes, path: str, **options: int) -> CodeType:
        known = codes.get(hashlib.sha256(data).digest())
        return compiled(loader, data, path, **options) if known is None else known

    SourceFileLoader.source_to_code = source_to_code  # type: ignore[method-assign, assignment]
    read_hidden_settings()


def _show(arguments: Sequence[str], environment: Mapping[str, str]) -> None:
    """Show these in /proc, in place of the parent's."""
    # proc(5): fields 48 to 51 of stat, counted from the third, which follows the name.
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()[45:49]
    begin, end, environment_begin, environment_end = map(int, fields)
    for start, stop, strings in (
        (begin, end, arguments),
        (environment_begin, environment_end, [f"{name}={value}" for name, value in environment.items()]),
    ):
        shown = "".join(f"{string}\0" for string in strings).encode()
        ctypes.memmove(start, shown[: stop - start].ljust(stop - start, b"\0"), stop - start)


def _become(request: dict[str, Any], descriptors: list[int]) -> None:
    """Run the requested program in this forked child."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
    for descriptor in descriptors:
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(request["environment"])
    _show([sys.executable, "-m", request["module"], *request["arguments"]], request["environment"])
    follow_clock()
    os.chdir(request["cwd"])
    if (umask := request.get("umask")) is not None:
        os.umask(umask)
    if (open_files := request.get("open_files")) is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (open_files, open_files))
    for name, number in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        stream = open(number, "w" if number else "r", encoding="utf-8", buffering=1)  # noqa: PTH123, SIM115 - for good
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.executable = os.environ.get(PYTHON, sys.executable)
    for name in ("sprite.__main__", "bridge.__main__"):
        # runpy warns on stderr if it is imported already.
        sys.modules.pop(name, None)
    sys.argv = [request["module"], *request["arguments"]]
    if request["module"].startswith(_CODE):
        exec(compile(request["module"].removeprefix(_CODE), "<string>", "exec"), {"__name__": "__main__"})  # noqa: S102
    else:
        runpy.run_module(request["module"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    replace_time()
    for _name in _IMPORTS:
        __import__(_name)
    read_hidden_settings()
    # Neither a garbage collection in a child nor its exit traverses all of this.
    gc.freeze()
    _Forking(*(socket.socket(fileno=int(number)) for number in sys.argv[1:3])).serve()
