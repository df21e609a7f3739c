"""Detect by trial which sandbox works on this machine, and build the command that starts the agent in it."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from sprite.boundary.hidden import bridge_folders
from sprite.boundary.plan import bundled_cli, plan_of
from sprite.common.files import replacing
from sprite.config import Settings
from sprite.errors import is_shortage

CELL = Path(__file__).with_name("cell.py")
PROBE_SECONDS = 20.0
_HELD = "held"
HIDDEN = "namespaces: .os, the bridge's data and the keys in your home are not there for the agent and what it runs"
OPEN = (
    "none: the agent can read what you can, keys too, and in `ask` mode you are asked about each command; .os is "
    "guarded by checks of paths and commands only"
)
#: Its parent is this process: the sprite's memory and environment must not be visible from there.
_PROBE = f'for path; do [ ! -e "$path" ] || exit; done; ! cat /proc/$PPID/environ > /dev/null 2>&1 && echo {_HELD}'


@dataclass(frozen=True, slots=True)
class Boundary:
    """Whether the kernel hides `.os/`, keys and the bridge's data from the agent, and a text with the reason."""

    holds: bool
    words: str


def find_boundary(settings: Settings, seconds: float = PROBE_SECONDS) -> Boundary:
    """Try the sandbox with a program that looks for memory (0.1 s). The workspace's folders must exist.

    A trial that takes longer than `seconds` counts as no sandbox.
    """
    if sys.platform != "linux":
        return _none("namespaces are Linux's")
    others = [folder / "run" for folder in bridge_folders(settings)]
    try:
        found = subprocess.run(
            [*_cell(settings, None), "/bin/sh", "-c", _PROBE, "sh", str(settings.memory), *map(str, others)],
            cwd=settings.workspace,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        if is_shortage(error):
            # A shortage of resources says nothing about the machine.
            raise
        return _none(str(error))
    if _HELD not in found.stdout.split():
        return _none(" ".join(found.stderr.split())[:300] or "the folder could still be seen")
    return Boundary(holds=True, words=HIDDEN)


def _none(reason: str) -> Boundary:
    return Boundary(holds=False, words=f"{OPEN} ({reason})")


def agent_command(settings: Settings) -> Path | None:
    """Create and return an executable that runs the CLI in the sandbox; None if there is no CLI."""
    cli = bundled_cli()
    if cli is None:
        return None
    settings.cli_state.mkdir(mode=0o700, exist_ok=True)
    command = settings.run / "agent"
    with replacing(command, is_synced=False) as stream:
        stream.write(f'#!/bin/sh\nexec {shlex.join(_cell(settings, cli))} {shlex.quote(str(cli))} "$@"\n'.encode())
        os.fchmod(stream.fileno(), 0o700)
    return command


def _cell(settings: Settings, cli: Path | None) -> list[str]:
    return [sys.executable, "-I", "-S", str(CELL), json.dumps(plan_of(settings, cli))]
