"""What the agent's cell is made of: which paths are hidden, and what of them the CLI itself needs.

Only its own folder (its conversations), the prompt it was started with and its program; see cell.py.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TypedDict

from sprite.config import Settings, is_root

#: Who listens here runs programs outside for anybody who asks: the service managers and container engines.
SERVICE_DOORS = (
    "/run/systemd/private",
    "/run/systemd/io.systemd.Manager",
    "/run/dbus/system_bus_socket",
    "/run/user/{user}/systemd/private",
    "/run/user/{user}/bus",
    "/run/docker.sock",
    "/run/containerd/containerd.sock",
    "/run/podman/podman.sock",
)
_OCTAL = re.compile(r"\\([0-7]{3})")


class Plan(TypedDict):
    """The cell's plan.

    `hide`: a folder, under every path it is mounted at. `keep`: [path, whether it may be written] below it that stays.
    `pin`: folders that are not to be renamed. `close`: files and sockets that lead around all this. `sudo`: whether to
    ask sudo, without a password, for a namespace with every user in it, so that the program may become root inside.
    """

    hide: list[str]
    keep: list[tuple[str, bool]]
    pin: list[str]
    close: list[str]
    sudo: bool


def plan_of(settings: Settings, cli: Path | None) -> Plan:
    """The plan for a workspace, as things are mounted now."""
    system = settings.system.resolve()
    folders, files = _aliases(system)
    kept = [(settings.cli_state, True), (settings.boot_prompt, False), *([(cli, False)] if cli else [])]
    bypass = settings.permissions == "bypass"
    doors = [door.format(user=os.geteuid()) for door in SERVICE_DOORS] if bypass else []
    return Plan(
        hide=[str(system), *folders],
        keep=[
            (str(path), writable)
            for path, writable in kept
            if path.exists() and path.resolve().is_relative_to(system) and path.resolve() == path
        ],
        pin=[str(path) for path in (*reversed(system.parents), system)[1:-1]],
        # In `ask` mode the person sees each command before it runs, and keyrings are reached the same way.
        close=[*files, *([str(settings.vm_socket), *doors] if bypass else [])],
        # On a VM the agent may install what it needs. Elsewhere sudo is none of our business.
        sudo=bypass and not is_root() and shutil.which("sudo") is not None,
    )


def bundled_cli() -> Path | None:
    """The CLI that came with the SDK, found without importing it."""
    spec = importlib.util.find_spec("claude_agent_sdk")
    folders = spec.submodule_search_locations if spec is not None else None
    found = Path(folders[0]).resolve() / "_bundled" / "claude" if folders else None
    return found if found is not None and os.access(found, os.X_OK) else None


# --- the same folder under other names ---


def _aliases(folder: Path) -> tuple[list[str], list[str]]:
    """(folders, files) where a folder, or a part of it, is mounted a second time."""
    mounts = list(_mounts())
    homes = [mount for mount in mounts if folder.is_relative_to(mount.point)]
    if not homes:
        return [], []
    # The longest; of several at one place the last lies on top.
    home = max(enumerate(homes), key=lambda at: (len(at[1].point.parts), at[0]))[1]
    inside = home.root / folder.relative_to(home.point)
    found = []
    for mount in mounts:
        if mount.device != home.device:
            continue
        if inside.is_relative_to(mount.root):
            found.append(mount.point / inside.relative_to(mount.root))
        elif mount.root.is_relative_to(inside):
            found.append(mount.point)
    others = sorted({path for path in found if not path.is_relative_to(folder) and path.exists()})
    return [str(path) for path in others if path.is_dir()], [str(path) for path in others if not path.is_dir()]


class _Mount:
    """A line of /proc/self/mountinfo: which folder of which device is mounted where."""

    def __init__(self, line: str) -> None:
        fields = [_OCTAL.sub(lambda code: chr(int(code[1], 8)), field) for field in line.split()[:5]]
        self.device, self.root, self.point = fields[2], Path(fields[3]), Path(fields[4])


def _mounts() -> Iterator[_Mount]:
    try:
        text = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return
    yield from map(_Mount, text.splitlines())
