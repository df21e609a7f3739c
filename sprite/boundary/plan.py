"""The plan of the agent's sandbox: the hidden paths, and what stays visible inside them.

Visible are the workspace, the CLI's folder (its conversations), its boot prompt and its program; see cell.py.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TypedDict

from sprite.boundary.hidden import hidden_places
from sprite.config import Settings, is_root

#: Sockets of service managers and container engines, which run programs outside the sandbox on request.
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
    """The sandbox's plan, in JSON.

    `hide`: folders, outer ones first, each with what stays in it: [path, whether it is writable]. `pin`: folders
    that cannot be renamed. `close`: files, and sockets that bypass the sandbox. `sudo`: whether to ask sudo,
    without a password, for a namespace with every user, so that the program may become root inside.
    """

    hide: list[tuple[str, list[tuple[str, bool]]]]
    pin: list[str]
    close: list[str]
    sudo: bool


def plan_of(settings: Settings, cli: Path | None) -> Plan:
    """Return the plan for a workspace, according to the current mounts."""
    system, workspace, mounts = settings.system.resolve(), settings.workspace.resolve(), list(_mounts())
    folders, files = {system}, set[Path]()
    for place in (system, *hidden_places(settings)):
        (folders if place.is_dir() else files).add(place)
        for alias in _aliases(place, mounts):
            (folders if alias.is_dir() else files).add(alias)
    # It may be mounted here from a folder that is hidden.
    folders.discard(workspace)
    folders = {folder for folder in folders if _is_seen(folder, folders, workspace)}
    kept = [(workspace, True), (settings.cli_state, True), (settings.boot_prompt, False)]
    stays: dict[Path, list[tuple[str, bool]]] = {folder: [] for folder in sorted(folders)}
    for path, writable in [*kept, *([(cli, False)] if cli else [])]:
        around = [folder for folder in (path, *path.parents) if folder in folders]
        # A path that was reached by a link is elsewhere, and is not hidden.
        if around and path.exists() and path.resolve() == path:
            stays[around[0]].append((str(path), writable))
    doors = [Path(door.format(user=os.geteuid())) for door in SERVICE_DOORS]
    return Plan(
        hide=[(str(folder), inside) for folder, inside in stays.items()],
        pin=[str(path) for path in sorted({path for place in folders | files for path in place.parents} - {Path("/")})],
        close=[str(path) for path in (*sorted(files), settings.vm_socket, *doors)],
        # On a VM the agent may install packages. Elsewhere sudo is not used.
        sudo=settings.permissions == "bypass" and not is_root() and shutil.which("sudo") is not None,
    )


def _is_seen(folder: Path, hidden: set[Path], workspace: Path) -> bool:
    """Return whether a folder must be hidden separately: the workspace or no hidden folder is around it."""
    around = next((place for place in folder.parents if place == workspace or place in hidden), None)
    return around is None or around == workspace


def bundled_cli() -> Path | None:
    """Return the CLI bundled with the SDK, without importing the SDK."""
    spec = importlib.util.find_spec("claude_agent_sdk")
    folders = spec.submodule_search_locations if spec is not None else None
    found = Path(folders[0]).resolve() / "_bundled" / "claude" if folders else None
    return found if found is not None and os.access(found, os.X_OK) else None


# --- the same place under other names ---


class _Mount(NamedTuple):
    """A line of /proc/self/mountinfo: a folder of a device and its mount point."""

    device: str
    root: Path
    point: Path


def _aliases(place: Path, mounts: list[_Mount]) -> list[Path]:
    """Return other mount points of a file or folder, or of a part of it."""
    homes = [mount for mount in mounts if place.is_relative_to(mount.point)]
    if not homes:
        return []
    # The longest; of several at one place the last is on top.
    home = max(enumerate(homes), key=lambda at: (len(at[1].point.parts), at[0]))[1]
    inside = home.root / place.relative_to(home.point)
    found = set()
    for mount in mounts:
        if mount.device != home.device:
            continue
        if inside.is_relative_to(mount.root):
            found.add(mount.point / inside.relative_to(mount.root))
        elif mount.root.is_relative_to(inside):
            found.add(mount.point)
    return sorted(path for path in found if not path.is_relative_to(place) and path.exists())


def _mounts() -> Iterator[_Mount]:
    try:
        text = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return
    for line in text.splitlines():
        fields = [_OCTAL.sub(lambda code: chr(int(code[1], 8)), field) for field in line.split()[:5]]
        yield _Mount(fields[2], Path(fields[3]), Path(fields[4]))
