"""A Python that is forked from a process with all packages imported (tests/forking.py).

`python3 -I -S fork_client.py SOCKET MODULE ARGUMENTS` lives as long as its child: it forwards signals, and exits with
the child's status; if it is killed, so is the child. It imports only small modules: a start takes 20 ms instead of a
second.
"""

from __future__ import annotations

import _socket
import json
import os
import signal
import sys


def _main(address: str, module: str, *arguments: str) -> int:
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    connection.connect(address)
    request = {
        "module": module,
        "arguments": arguments,
        "environment": dict(os.environ),
        "cwd": os.getcwd(),  # noqa: PTH109 - pathlib takes as long as all the rest
    }
    data = json.dumps(request).encode()
    streams = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
    connection.sendmsg([len(data).to_bytes(4, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
    connection.sendall(data)
    pid = _next(connection)["started"]
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _: os.kill(pid, number))
    code = _next(connection)["code"]
    if code < 0:
        if code != -signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


def _next(connection: _socket.socket) -> dict[str, int]:
    line = b""
    while not line.endswith(b"\n"):
        received = connection.recv(1)
        if not received:
            sys.exit("the forking process has ended")
        line += received
    told: dict[str, int] = json.loads(line)
    return told


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
