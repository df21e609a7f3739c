"""`python -m tests.unshared sprite|bridge ...`: the program in a user namespace in which no other can be made.

A container's rules have this effect on a sprite. Needs root.
"""

from __future__ import annotations

import ctypes
import runpy
import sys
from pathlib import Path

_CLONE_NEWUSER = 0x10000000
_WRITTEN = (
    ("/proc/self/setgroups", "deny"),
    ("/proc/self/uid_map", "0 0 1"),
    ("/proc/self/gid_map", "0 0 1"),
    ("/proc/sys/user/max_user_namespaces", "0"),
)

if __name__ == "__main__":
    if ctypes.CDLL(None, use_errno=True).unshare(_CLONE_NEWUSER):
        raise OSError(ctypes.get_errno(), "no user namespace can be made")
    for path, content in _WRITTEN:
        Path(path).write_text(content, encoding="ascii")
    del sys.argv[0]
    runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
