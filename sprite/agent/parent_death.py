"""The CLI ends with the sprite: the kernel sends it SIGTERM when the sprite dies, however it dies (Linux only).

Where no sandbox can be made, it also gives up new privileges for good, and so does all that it runs: the bridge knows
them by that, whatever they detach themselves from.

On SIGTERM the CLI ends at once, and what it runs with it; of a closed stdin it takes notice only after its turn. A
process can ask for that signal only for itself, so the CLI is started through this file, which asks and then becomes
the CLI. Run as a program, it may import nothing but the standard library.
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


def wrapped(cli: Path, folder: Path, *, gains_privileges: bool) -> Path | None:
    """A program in `folder` that is `cli` and ends with this process; None where there cannot be one."""
    if sys.platform != "linux" or not cli.is_file():
        return None
    program = folder / "cli"
    privileges = "gains" if gains_privileges else "keeps"
    command = shlex.join([sys.executable, "-I", "-S", __file__, str(os.getpid()), privileges, str(cli)])
    try:
        # Another may be running the one of before; and a pipe would be waited for.
        program.unlink(missing_ok=True)
        program.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        program.chmod(0o700)
    except OSError:
        return None
    # Not so on a file system that is mounted without the right to run programs.
    return program if os.access(program, os.X_OK) else None


def _become(parent: int, privileges: str, command: list[str]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if privileges == "keeps":
        libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if os.getppid() == parent:
        # Else it has died before it was asked about.
        os.execv(command[0], command)  # noqa: S606 - to become this program is what this one is for


if __name__ == "__main__":
    _become(int(sys.argv[1]), sys.argv[2], sys.argv[3:])
