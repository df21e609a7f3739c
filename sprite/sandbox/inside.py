"""First program in a sandbox: `python -I -S inside.py PORT=SOCKET... -- PROGRAM ARGS...`.

It listens on loopback and forwards each connection to a Unix socket, then becomes the program. The sockets are beside
this file. A script of its own, without imports from Sprite.
"""

# Each start of the agent waits for these modules.
import _socket
import _struct
import os
import resource
import sys
from _thread import start_new_thread

#: Processes and threads of one sandbox; root's are not limited by the kernel.
MOST_PROCESSES = 4096
#: When memory is short, the kernel ends the sandbox's programs before the person's.
OOM_SCORE = "500"
CHUNK_BYTES = 1 << 16
#: The kernel's number of each machine: AUDIT_ARCH, then add_key, request_key, keyctl, socket and ioctl.
_CALLS = {"x86_64": (0xC000003E, 248, 249, 250, 41, 16), "aarch64": (0xC00000B7, 217, 218, 219, 198, 29)}
_IO_URING_SETUP = 425
_AF_VSOCK, _TIOCSTI, _TIOCLINUX = 40, 0x5412, 0x541C
#: Offsets in `struct seccomp_data`: the call, the architecture, the lower halves of the first two arguments.
_CALL, _MACHINE, _FIRST, _SECOND = 0, 4, 16, 24
_X32 = 0x40000000


def main() -> None:
    """Listen, forward in a process of its own, and become the program."""
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
    if sys.platform == "linux":
        _filter()
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


def _filter() -> None:
    """Refuse what no namespace closes: the kernel's keyrings, a hypervisor's sockets, and typing into terminals.

    io_uring would make sockets beside the filter. Calls by 32-bit numbers end the program.
    """
    import ctypes

    if os.uname().machine not in _CALLS:
        raise SystemExit("Sprite knows no system call filter for this machine.")
    machine, *keys, sockets, ioctl = _CALLS[os.uname().machine]
    load, equal, at_least, allow, refuse, kill = 0x20, 0x15, 0x35, 0x7FFF0000, 0x50001, 0x80000000
    parts = [(load, 0, 0, _MACHINE), (equal, 1, 0, machine), (6, 0, 0, kill), (load, 0, 0, _CALL)]
    parts += [(at_least, 0, 1, _X32), (6, 0, 0, kill)]
    for number in (*keys, _IO_URING_SETUP):
        parts += [(equal, 0, 1, number), (6, 0, 0, refuse)]
    for number, offset, *values in ((sockets, _FIRST, _AF_VSOCK), (ioctl, _SECOND, _TIOCSTI, _TIOCLINUX)):
        parts += [(equal, 0, 2 + 2 * len(values), number), (load, 0, 0, offset)]
        for value in values:
            parts += [(equal, 0, 1, value), (6, 0, 0, refuse)]
        # The call's number again.
        parts += [(load, 0, 0, _CALL)]
    parts += [(6, 0, 0, allow)]
    code = ctypes.create_string_buffer(b"".join(_struct.pack("=HBBI", *part) for part in parts))
    program = ctypes.create_string_buffer(_struct.pack("@HP", len(parts), ctypes.addressof(code)))
    # Bubblewrap has set no_new_privs. PR_SET_SECCOMP, SECCOMP_MODE_FILTER.
    if ctypes.CDLL(None, use_errno=True).prctl(22, 2, program, 0, 0):
        raise OSError(ctypes.get_errno(), "the system call filter cannot be set")


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
    """Copy one direction; at its end, end only this direction."""
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
