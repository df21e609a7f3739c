"""Attempts to break out of the sandbox: `python -I -S attempts.py FACTS`. It prints those that got through, and `done`.

FACTS (JSON) has `closed` (paths that must not be there), `written` (folders that must not be written to), `port` and
`abstract` (where a program outside listens), `spaces` (the namespaces outside), and `marks` (no setuid files).
"""

from __future__ import annotations

import _socket
import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

DONE = "done"
_TIOCSTI = 0x5412
_AF_VSOCK = 40
#: The number of the call `keyctl`, by machine, and its argument for the session's keys.
_KEYCTL = {"x86_64": 250, "aarch64": 219}
_SESSION_KEYS = -3


def attempts(facts: dict[str, Any]) -> dict[str, Callable[[], object]]:
    """Return functions by name that each try to break out: they return true on success, or fail with OSError."""
    return {
        "read the sprite's memory or the bridge's data": lambda: any(map(os.path.lexists, facts["closed"])),
        "create a file outside the workspace": lambda: any(map(_create, facts["written"])),
        "reach a hidden folder through /proc": lambda: any(
            os.path.exists(f"/proc/{pid}/root{path}") for pid in _processes() for path in facts["closed"]
        ),
        "see the machine's processes": lambda: _same("pid", facts),
        "share memory with the machine's programs": lambda: _same("ipc", facts),
        "rename the machine": lambda: _same("uts", facts),
        "take part in the machine's user namespace": lambda: _same("user", facts),
        "unmount what hides a folder": _unmount,
        "change a setting of the kernel": lambda: _create("/proc/sys/kernel/core_pattern", os.O_WRONLY),
        "read a disk": _disk,
        "type into the terminal": _type,
        "read the kernel's keys": _keys,
        "connect to the hypervisor": lambda: _socket.socket(_AF_VSOCK, _socket.SOCK_STREAM),
        "make a program setuid": lambda: facts["marks"] and _mark(),
        "connect to the machine's loopback": lambda: facts["port"] and _connect(("127.0.0.1", facts["port"])),
        "connect to an abstract socket": lambda: facts["abstract"] and _connect(f"\0{facts['abstract']}"),
    }


def _create(path: str, flags: int = os.O_CREAT | os.O_EXCL | os.O_WRONLY) -> bool:
    path = path if flags == os.O_WRONLY else os.path.join(path, f".sprite-attempt-{os.getpid()}")
    os.close(os.open(path, flags))
    if flags != os.O_WRONLY:
        os.unlink(path)
    return True


def _processes() -> list[str]:
    return [name for name in os.listdir("/proc") if name.isdigit()]


def _same(kind: str, facts: dict[str, Any]) -> bool:
    return bool(os.readlink(f"/proc/self/ns/{kind}") == facts["spaces"][kind])


def _unmount() -> bool:
    import ctypes

    return int(ctypes.CDLL(None).umount2(os.getcwd().encode(), 2)) == 0


def _disk() -> bool:
    import stat

    return any(stat.S_ISBLK(os.lstat(entry).st_mode) and os.open(entry, os.O_RDONLY) for entry in os.scandir("/dev"))


def _type() -> bool:
    import fcntl

    terminal = os.open("/dev/tty", os.O_RDWR)
    return fcntl.ioctl(terminal, _TIOCSTI, b" ") is not None


def _keys() -> bool:
    import ctypes

    number = _KEYCTL.get(os.uname().machine, -1) if sys.platform == "linux" else -1
    return int(ctypes.CDLL(None).syscall(number, 0, _SESSION_KEYS, 0)) >= 0


def _mark() -> bool:
    import stat

    file = os.memfd_create("marked")
    os.fchmod(file, stat.S_ISUID)
    return bool(os.fstat(file).st_mode & stat.S_ISUID)


def _connect(address: Any) -> bool:
    kind = _socket.AF_UNIX if isinstance(address, str) else _socket.AF_INET
    connection = _socket.socket(kind, _socket.SOCK_STREAM)
    connection.settimeout(1)
    connection.connect(address)
    return True


def main() -> None:
    """Print the names of the attempts that got through."""
    for name, attempt in attempts(json.loads(sys.argv[1])).items():
        try:
            if attempt():
                print(name)
        except (OSError, AttributeError):
            # The system has no such call.
            continue
    print(DONE)


if __name__ == "__main__":
    main()
