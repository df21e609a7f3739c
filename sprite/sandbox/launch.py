"""Start bubblewrap with every user of the VM in its namespace: `python -I -S launch.py BWRAP ARGS...`.

Needs root, or sudo without a password; otherwise only this user is in it. A script of its own.
"""

import os
import subprocess
import sys

_SCRIPT = 'printf %s "$2" > "/proc/$1/uid_map" && printf %s "$3" > "/proc/$1/gid_map"'


def main() -> None:
    """Replace this process by bubblewrap; a child in the background maps all users into bubblewrap's namespace."""
    info, info_end = os.pipe()
    wait, wait_end = os.pipe()
    # Bubblewrap must not wait for this child.
    if os.fork() == 0:
        if os.fork() == 0:
            os.close(info_end)
            told = b""
            while b"}" not in told and (part := os.read(info, 1000)):
                told += part
            _let_in(int(told.partition(b'"child-pid":')[2].strip(b" \n}").split(b",")[0]))
            os.write(wait_end, b"1")
        os._exit(0)
    os.wait()
    os.close(wait_end)
    for number in (info_end, wait):
        os.set_inheritable(number, True)
    arguments = ["--info-fd", str(info_end), "--userns-block-fd", str(wait), *sys.argv[2:]]
    os.execv(sys.argv[1], [sys.argv[1], *arguments])  # noqa: S606 - to become this program is what this one is for


def _let_in(process: int) -> None:
    command = ["/bin/sh", "-c", _SCRIPT, "sh", str(process), _everyone("uid_map"), _everyone("gid_map")]
    sudo = [] if os.geteuid() == 0 else ["sudo", "-n"]
    try:
        found = subprocess.run([*sudo, *command], stdin=subprocess.DEVNULL, capture_output=True, check=False)
        if found.returncode == 0:
            return
    except OSError:
        pass
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{os.geteuid()} {os.geteuid()} 1"),
        ("gid_map", f"{os.getegid()} {os.getegid()} 1"),
    ):
        with open(f"/proc/{process}/{name}", "w", encoding="ascii") as file:
            file.write(text)


def _everyone(name: str) -> str:
    """Return the map file (`uid_map` or `gid_map`) that gives each user or group the same id in a new namespace."""
    with open(f"/proc/self/{name}", encoding="ascii") as file:
        lines = [line.split() for line in file]
    return "\n".join(f"{inside} {inside} {count}" for inside, _, count in lines)


if __name__ == "__main__":
    main()
