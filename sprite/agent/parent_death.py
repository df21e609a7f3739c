"""End the CLI with the sprite: the kernel sends it SIGTERM when the sprite dies (Linux only).

The CLI notices a closed stdin only after its turn, but ends at once on SIGTERM. A process can request that signal only
for itself, so the CLI is started through this file, which requests it and executes the CLI. It also gives up gaining
privileges, unless the agent may gain them; by that the bridge recognises the agent's processes. The file runs as a
program, so it imports the standard library only.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import signal
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_NO_NEW_PRIVS = 38


def wrapped(cli: Path, folder: Path, script: str, *, gains_privileges: bool) -> Path | None:
    """Return a shell script in `folder` that begins with `script`, runs `cli` and ends with this process, or None."""
    if sys.platform != "linux" or not cli.is_file():
        return None
    program = folder / "cli"
    privileges = "gains" if gains_privileges else "keeps"
    command = shlex.join([sys.executable, "-I", "-S", __file__, str(os.getpid()), privileges, str(cli)])
    try:
        # Another process may be running the old file, and opening a pipe for writing would block.
        program.unlink(missing_ok=True)
        program.write_text(f'{script}exec {command} "$@"\n')
        program.chmod(0o700)
    except OSError:
        return None
    # A file system mounted noexec cannot run it.
    return program if os.access(program, os.X_OK) else None


def _become(parent: int, privileges: str, command: list[str]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if privileges == "keeps":
        libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if os.getppid() == parent:
        # Otherwise the parent died before the signal was requested.
        os.execv(command[0], command)  # noqa: S606 - to become this program is what this one is for


if __name__ == "__main__":
    _become(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
