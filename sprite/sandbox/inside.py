"""First program in a sandbox: `python -I -S inside.py PORT=SOCKET... -- PROGRAM ARGS...`. A script of its own.

It forwards connections from loopback to Unix sockets beside this file, and becomes the program.
"""

# Each start of the agent waits for these modules.
import _socket
import os
import resource
import sys
from _thread import start_new_thread

#: Processes and threads of one sandbox; root's are not limited by the kernel.
MOST_PROCESSES = 4096
#: When memory is short, the kernel ends the sandbox's programs before the person's.
OOM_SCORE = "500"
CHUNK_BYTES = 1 << 16


def main() -> None:
    """Listen inside the sandbox, forward connections in a separate process, and run the program."""
    end = sys.argv.index("--")
    doors = [(_listening(int(port)), name) for port, name in (each.split("=") for each in sys.argv[1:end])]
    if doors and os.fork() == 0:
        # The agent must not wait for this child.
        if os.fork() == 0:
            _serve(doors)
        os._exit(0)
    elif doors:
        os.wait()
    for listener, _ in doors:
        listener.close()
    _bound()
    os.execv(sys.argv[end + 1], sys.argv[end + 1 :])  # noqa: S606 - to become this program is what this one is for


def _bound() -> None:
    for kind, most in ((resource.RLIMIT_NPROC, MOST_PROCESSES), (resource.RLIMIT_CORE, 0)):
        hard = resource.getrlimit(kind)[1]
        limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (limit, limit))
    try:
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:
            file.write(OOM_SCORE)
    except OSError:
        # It was higher before.
        return


def _listening(port: int) -> _socket.socket:
    listener = _socket.socket(_socket.AF_INET, _socket.SOCK_STREAM)
    listener.setsockopt(_socket.SOL_SOCKET, _socket.SO_REUSEADDR, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(256)
    return listener


def _serve(doors: list[tuple[_socket.socket, str]]) -> None:
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nowhere, number)
    # A socket's whole path may be too long for the kernel.
    os.chdir(os.path.dirname(os.path.abspath(__file__)))
    for listener, name in doors[1:]:
        start_new_thread(_accept, (listener, name))
    _accept(*doors[0])


def _accept(listener: _socket.socket, name: str) -> None:
    while True:
        number, _ = listener._accept()  # type: ignore[attr-defined]  # noqa: SLF001 - `socket` takes long to import
        client = _socket.socket(fileno=number)
        start_new_thread(_forward, (client, name))


def _forward(client: _socket.socket, name: str) -> None:
    server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        server.connect(name)
    except OSError:
        client.close()
        return
    start_new_thread(_pump, (client, server))
    _pump(server, client)


def _pump(source: _socket.socket, target: _socket.socket) -> None:
    """Copy bytes from one socket to another until the end, and then end only this direction."""
    try:
        while data := source.recv(CHUNK_BYTES):
            target.sendall(data)
        target.shutdown(_socket.SHUT_WR)
    except OSError:
        for each in (source, target):
            try:
                each.shutdown(_socket.SHUT_RDWR)
            except OSError:
                continue


if __name__ == "__main__":
    main()
