"""Processes under test, forked from a parent that has imported both programs: a start takes milliseconds.

`python -m tests.forking SOCKET_FD` is that parent. Each test process has one, started when it is first needed.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import json
import os
import resource
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
_LENGTH_BYTES = 4
#: Everything that the programs and their commands import, also late.
_IMPORTS = (
    "sprite.__main__ sprite.server sprite.agent.equipment sprite.commands.change sprite.commands.rebuild "
    "sprite.commands.import_logs bridge.__main__ bridge.app bridge.commands.serve bridge.commands.operate "
    "claude_agent_sdk"
).split()


class ForkedProcess:
    """What tests use of asyncio's Process, of a process that was forked."""

    def __init__(self, pid: int, ended: Future[int], streams: dict[str, Any]) -> None:
        self.pid = pid
        self._ended = ended
        self.stdin: asyncio.StreamWriter | None = streams.get("stdin")
        self.stdout: asyncio.StreamReader | None = streams.get("stdout")
        self.stderr: asyncio.StreamReader | None = streams.get("stderr")
        self._transports: list[asyncio.BaseTransport] = streams["transports"]

    @property
    def returncode(self) -> int | None:
        """The exit status, negative for a signal, None while it runs."""
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
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.forking", str(theirs.fileno())],
            cwd=ROOT,
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
        )
        theirs.close()
        self._socket = ours
        self._asking = threading.Lock()
        self._started: Future[int] = Future()
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
            pid = self._started.result(60)
            return pid, self._children[pid]

    def close(self) -> None:
        """End the parent."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._process.wait()
        self._socket.close()

    def _listen(self) -> None:
        with self._socket.makefile("rb") as stream:
            for line in stream:
                told = json.loads(line)
                if "started" in told:
                    self._children[told["started"]] = Future()
                    self._started.set_result(told["started"])
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
    """Run `python -m MODULE ARGUMENTS` in a forked process. Streams are as asyncio's: PIPE, DEVNULL, a file or None."""
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


def _serve(connection: socket.socket) -> None:
    """Fork a child for each request, and report pids and exit statuses, until the test process ends."""
    waking, wake = socket.socketpair()
    wake.setblocking(False)
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    import select

    while True:
        ready, _, _ = select.select([connection, waking], [], [])
        if waking in ready:
            waking.recv(4096)
            _reap(connection)
        if connection in ready:
            head, descriptors, _, _ = socket.recv_fds(connection, _LENGTH_BYTES, 3)
            if not head:
                return
            request = json.loads(_exactly(connection, int.from_bytes(head, "big")))
            pid = os.fork()
            if not pid:
                connection.close()
                waking.close()
                wake.close()
                _become(request, descriptors)
                return
            for descriptor in descriptors:
                os.close(descriptor)
            connection.sendall(json.dumps({"started": pid}).encode() + b"\n")


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += connection.recv(size - len(data))
    return data


def _reap(connection: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        code = os.waitstatus_to_exitcode(status)
        with contextlib.suppress(OSError):
            connection.sendall(json.dumps({"ended": pid, "code": code}).encode() + b"\n")


def _become(request: dict[str, Any], descriptors: list[int]) -> None:
    """Be the requested program in this forked child."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
    for descriptor in descriptors:
        os.close(descriptor)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["cwd"])
    if request["umask"] is not None:
        os.umask(request["umask"])
    if request["open_files"] is not None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (request["open_files"], request["open_files"]))
    for name, number in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        stream = open(number, "w" if number else "r", encoding="utf-8", buffering=1)  # noqa: PTH123, SIM115 - for good
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.argv = [request["module"], *request["arguments"]]
    # It was imported for its imports' sake; runpy warns about that.
    sys.modules.pop(f"{request['module']}.__main__", None)
    runpy.run_module(request["module"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    for _name in _IMPORTS:
        __import__(_name)
    _serve(socket.socket(fileno=int(sys.argv[1])))
