"""Runs a program where a folder is not there: `python -I -S cell.py PLAN PROGRAM ARGS...`, on Linux.

A script of its own, without imports from Sprite: it becomes the program (the same process id) and is gone. What PLAN
(JSON, see plan.py) hides is covered by an empty mount that nothing inside can take away: the mounts are made in one
user namespace, and the program runs in another below it, where the kernel has them locked (mount_namespaces(7)). As
the processes outside are in another user namespace, their memory, environment and open files are closed to it
(ptrace(2)).

Exit code 71, with words on stderr, where the system does not allow it.
"""

from __future__ import annotations

import ctypes
import json
import os
import stat
import sys

# Every CLI's start waits for this script: modules that only annotations need are left out.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import NoReturn

    from sprite.sandbox.sandbox import Plan

EXIT_NOT_ALLOWED = 71

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000
MS_BIND = 0x1000
MS_REC = 0x4000
MS_SLAVE = 0x80000
MS_NOSUID_NODEV_NOEXEC = 0x2 | 0x4 | 0x8
AT_FDCWD = -100
AT_RECURSIVE = 0x8000
MOUNT_ATTR_RDONLY = 0x1
#: mount_setattr(2); the same number on every architecture.
SYS_MOUNT_SETATTR = 442

#: What leads out of a namespace for root: settings that have the kernel run programs.
ROOT_READS_ONLY = ("/proc/sys", "/sys")
ROOT_MAY_NOT = ("/proc/sysrq-trigger",)

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mount.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_ulong, ctypes.c_char_p)


class _MountAttributes(ctypes.Structure):
    """The C structure mount_attr."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "userns_fd")]


def main() -> NoReturn:
    """Hides, and becomes the program."""
    plan: Plan = json.loads(sys.argv[1])
    program = sys.argv[2:]
    try:
        root = os.geteuid() == 0
        everyone = _enter(privileged=root, sudo=plan["sudo"], offline=plan["offline"])
        _furnish(plan, has_root=everyone or root)
        _enter(privileged=everyone, sudo=False)
    except OSError as error:
        sys.stderr.write(f"Nothing can be hidden from the agent here: {error}\n")
        sys.exit(EXIT_NOT_ALLOWED)
    os.execv(program[0], program)  # noqa: S606 - that is what it is for


# --- namespaces ---


def _enter(*, privileged: bool, sudo: bool, offline: bool = False) -> bool:
    """Into a new user and mount namespace; True if every user of the old one is in it, False if only this one."""
    user, group = os.geteuid(), os.getegid()
    users, groups = _identity("uid_map"), _identity("gid_map")
    write_maps = _write_maps if privileged else _ask_sudo if sudo else None
    if write_maps is None:
        _unshare(offline=offline)
    elif _unshare_with(lambda process: write_maps(process, users, groups), offline=offline):
        return True
    _write("/proc/self/setgroups", "deny")
    _write("/proc/self/uid_map", f"{user} {user} 1")
    _write("/proc/self/gid_map", f"{group} {group} 1")
    return False


def _identity(name: str) -> str:
    """The map by which everyone in this namespace is themselves in the next."""
    with open(f"/proc/self/{name}", encoding="ascii") as file:
        lines = [line.split() for line in file]
    return "\n".join(f"{inside} {inside} {count}" for inside, _, count in lines)


def _unshare_with(write_maps: Callable[[int], None], *, offline: bool) -> bool:
    """Unshares while a child stays behind, which may write the maps; whether it could."""
    process = os.getpid()
    waits, tells = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(tells)
        os.read(waits, 1)
        try:
            write_maps(process)
            os._exit(0)
        finally:
            os._exit(1)
    os.close(waits)
    try:
        _unshare(offline=offline)
    finally:
        os.close(tells)
        _, status = os.waitpid(child, 0)
    return status == 0


def _write_maps(process: int, users: str, groups: str) -> None:
    _write(f"/proc/{process}/uid_map", users)
    _write(f"/proc/{process}/gid_map", groups)


def _ask_sudo(process: int, users: str, groups: str) -> None:
    script = 'printf %s "$2" > "/proc/$1/uid_map" && printf %s "$3" > "/proc/$1/gid_map"'
    nowhere = os.open("/dev/null", os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nowhere, number)
    # Whichever sudo the person has.
    os.execvp("sudo", ["sudo", "-n", "/bin/sh", "-c", script, "sh", str(process), users, groups])  # noqa: S606, S607


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:
        file.write(text)


# --- mounts ---


def _furnish(plan: Plan, *, has_root: bool) -> None:
    # What is mounted outside later is seen inside, and nothing of inside outside.
    _mount("none", "/", None, MS_REC | MS_SLAVE)
    here = os.getcwd()
    for path in plan["pin"]:
        _mount(path, path, None, MS_BIND | MS_REC)
    if has_root:
        _bind_root()
    for path in plan["close"]:
        _cover_file(path)
    sources = {path: os.open(path, os.O_PATH) for _, inside in plan["hide"] for path, _ in inside}
    for hidden, inside in plan["hide"]:
        # It may have gone since the plan was made.
        if os.path.isdir(hidden):
            _hide(hidden, [(path, sources[path], writable) for path, writable in inside])
    # The folder that it was started in is below what now lies over it.
    os.chdir(here)


def _hide(hidden: str, inside: list[tuple[str, int, bool]]) -> None:
    """Covers a folder with an empty one, and puts back what stays: its path, an open descriptor, if it is written."""
    _mount("sprite", hidden, "tmpfs", MS_NOSUID_NODEV_NOEXEC, "size=64k,nr_inodes=128,mode=755")
    for path, source, writable in inside:
        _make_place(path, is_folder=stat.S_ISDIR(os.fstat(source).st_mode))
        _mount(f"/proc/self/fd/{source}", path, None, MS_BIND | MS_REC)
        os.close(source)
        if not writable:
            _read_only(path, recursive=False)
    _read_only(hidden, recursive=False)


def _bind_root() -> None:
    """What root could use to get at the disk, or at the kernel's own programs."""
    _mount("/proc/sys", "/proc/sys", None, MS_BIND | MS_REC)
    for path in ROOT_READS_ONLY:
        _read_only(path, recursive=True)
    for path in ROOT_MAY_NOT:
        _cover_file(path)
    for folder, _, names in os.walk("/dev"):
        for name in names:
            path = os.path.join(folder, name)
            if _is_block_device(path):
                _cover_file(path)


def _is_block_device(path: str) -> bool:
    try:
        return stat.S_ISBLK(os.lstat(path).st_mode)
    except FileNotFoundError:
        # Files in /dev/shm come and go.
        return False


def _cover_file(path: str) -> None:
    if os.path.exists(path):
        _mount("/dev/null", path, None, MS_BIND)


def _make_place(path: str, *, is_folder: bool) -> None:
    os.makedirs(path if is_folder else os.path.dirname(path), exist_ok=True)
    if not is_folder:
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY))


def _read_only(path: str, *, recursive: bool) -> None:
    attributes = _MountAttributes(set=MOUNT_ATTR_RDONLY)
    flags = AT_RECURSIVE if recursive else 0
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    arguments = (ctypes.c_int(AT_FDCWD), path.encode(), ctypes.c_uint(flags), ctypes.byref(attributes), size)
    _checked(_libc.syscall(ctypes.c_long(SYS_MOUNT_SETATTR), *arguments), path)


def _mount(source: str, target: str, kind: str | None, flags: int, options: str = "") -> None:
    kind_bytes = None if kind is None else kind.encode()
    _checked(_libc.mount(os.fsencode(source), os.fsencode(target), kind_bytes, flags, options.encode()), target)


def _unshare(*, offline: bool) -> None:
    # A new network namespace has no interface that is up.
    _checked(_libc.unshare(CLONE_NEWUSER | CLONE_NEWNS | (CLONE_NEWNET if offline else 0)), "a namespace")


def _checked(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)


if __name__ == "__main__":
    main()
