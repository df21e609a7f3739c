"""The Python of an emulated VM's environment: it has itself forked from a process that has all packages imported.

`python3 -I -S python.py SOCKET MODULE ARGUMENTS` is there as long as its child: it passes on signals, and ends as it
did; when it is killed, so is the child. It imports what is quick to import: a start takes 20 ms instead of a second.
"""

from __future__ import annotations

import json
import os
import signal
import sys

import _socket


def _main(address: str, module: str, *arguments: str) -> int:
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    connection.connect(address)
    request = {
        "module": module,
        "arguments": arguments,
        "environment": dict(os.environ),
        "cwd": os.getcwd(),  # noqa: PTH109 - pathlib takes as long as all the rest
        "is_vm": True,
    }
    data = json.dumps(request).encode()
    streams = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
    connection.sendmsg([len(data).to_bytes(4, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
    connection.sendall(data)
    told = b""
    is_passed_on = False
    while chunk := connection.recv(4096):
        told += chunk
        if b"\n" in told and not is_passed_on:
            is_passed_on = True
            pid = json.loads(told.split(b"\n")[0])["started"]
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, lambda number, _: os.kill(pid, number))
    code = json.loads(told.split(b"\n")[1])["code"]
    if code < 0:
        if code != -signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    return code


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:]))
