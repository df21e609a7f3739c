"""Detect by trial which sandbox works on this machine, and build the command that starts the agent in it."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypedDict

from sprite.common.files import replacing
from sprite.config import Settings, home_folders, is_root, xdg_folders
from sprite.errors import is_shortage

#: Below a home directory: credentials, and records of what a person typed or visited.
KEY_PLACES = (
    # Other machines, signatures, encryption.
    *(".ssh", ".gnupg", ".pki", ".config/age", ".config/sops"),
    # Clouds, clusters, infrastructure.
    *(".aws", ".azure", ".oci", ".kube", ".docker", ".boto", ".s3cfg", ".terraformrc", ".vault-token"),
    *(".terraform.d/credentials.tfrc.json", ".fly/config.yml", ".config/gcloud", ".config/doctl", ".config/rclone"),
    ".config/containers/auth.json",
    # Code hosts and package registries.
    *(".config/gh", ".config/glab-cli", ".config/hub", ".config/git/credentials", ".git-credentials", ".netrc"),
    *(".npmrc", ".yarnrc.yml", ".pypirc", ".gem/credentials", ".cargo/credentials", ".cargo/credentials.toml"),
    *(".m2/settings.xml", ".gradle/gradle.properties"),
    # Databases.
    *(".pgpass", ".my.cnf", ".mylogin.cnf"),
    # Passwords.
    *(".password-store", ".config/op", ".config/Bitwarden", ".config/keepassxc"),
    *(".local/share/keyrings", ".local/share/kwalletd"),
    # Browsers and mail: a cookie is a login.
    *(".mozilla", ".thunderbird", ".config/google-chrome", ".config/chromium", ".config/BraveSoftware"),
    *(".config/microsoft-edge", ".config/vivaldi", ".config/opera", "snap/firefox", "snap/chromium"),
    # Other agents: their logins, and what was said to them.
    *(".claude", ".claude.json", ".codex", ".gemini", ".config/github-copilot"),
    *(".huggingface", ".cache/huggingface/token", ".kaggle"),
    # Histories: commands are typed with passwords in them.
    *(".bash_history", ".zsh_history", ".local/share/fish/fish_history", ".python_history", ".node_repl_history"),
    *(".psql_history", ".mysql_history", ".sqlite_history"),
)
#: Sockets and folders where programs of a person's session get keys.
_SESSION_PLACES = ("/run/user/{user}/keyring", "/run/user/{user}/gnupg")


def hidden_places(settings: Settings) -> list[Path]:
    """Return the existing files and folders with links resolved; outer ones first."""
    # The home directory of a VM belongs to the agent, which is meant to use its keys.
    keys = () if settings.vm_socket.exists() else _key_places()
    wanted = [*_bridge_places(settings), *keys]
    found = {Path(os.path.realpath(place)) for place in wanted if os.path.lexists(place)}
    return sorted(place for place in found if place.parent != place and (place.is_dir() or place.is_file()))


def bridge_folders(settings: Settings) -> list[Path]:
    """Return the data folders of bridges: the configured one, and one that contains the workspace."""
    folder = settings.workspace.parent.parent
    is_around = settings.workspace.parent.name == "workspaces" and (folder / "run/bridge.lock").exists()
    return [*([settings.bridge_data] if settings.bridge_data else []), *([folder] if is_around else [])]


def _bridge_places(settings: Settings) -> Iterator[Path]:
    for folder in bridge_folders(settings):
        yield folder
        control = folder / "run/bridge.sock"
        if control.is_symlink():
            # A folder with a long path has its socket elsewhere.
            yield control.readlink().parent


def _key_places() -> Iterator[Path]:
    yield from (Path(place.format(user=os.geteuid())) for place in _SESSION_PLACES)
    for home in home_folders():
        try:
            there = {entry.name for entry in home.iterdir()}
        except OSError:
            continue
        yield from (home / place for place in KEY_PLACES if place.partition("/")[0] in there)
    for usual, chosen in xdg_folders().items():
        yield from (chosen / place.removeprefix(usual) for place in KEY_PLACES if place.startswith(usual))


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
    without a password, for a namespace with every user, so that the program may become root inside. `offline`: whether
    it has no network.
    """

    hide: list[tuple[str, list[tuple[str, bool]]]]
    pin: list[str]
    close: list[str]
    sudo: bool
    offline: bool


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
        offline=False,
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


#: Folders beside the workspace and the home directories that a program which only computes does not need.
_OTHERS_PLACES = ("/home", "/media", "/mnt", "/run", "/srv", "/tmp", "/var/tmp")  # noqa: S108 - to hide them


def confined_command(settings: Settings, script: Path) -> list[str]:
    """Return the command that runs a Python script without network, workspace and home directories.

    Only its own folder and Python's are put back where they are inside. The script starts with this interpreter's
    packages.
    """
    own = {settings.workspace, settings.system, *bridge_folders(settings), *home_folders()}
    found = {place.resolve() for place in own | {*map(Path, _OTHERS_PLACES)} if place.is_dir()} - {Path("/")}
    hidden = sorted(place for place in found if not any(other in found for other in place.parents))
    prefix = Path(sys.prefix).resolve()
    kept = {prefix, Path(sys.base_prefix).resolve(), script.resolve().parent}
    hide = [(str(place), [(str(path), False) for path in sorted(kept) if place in path.parents]) for place in hidden]
    # Sockets are reachable by path, also without a network.
    doors = [settings.vm_socket, *(Path(door.format(user=os.geteuid())) for door in SERVICE_DOORS)]
    pins = sorted({str(path) for place in hidden for path in place.parents} - {"/"})
    plan = Plan(hide=hide, pin=pins, close=[str(path) for path in doors], sudo=False, offline=True)
    python = prefix / "bin" / Path(sys.executable).name
    return [sys.executable, "-I", "-S", str(CELL), json.dumps(plan), str(python), "-I", str(script.resolve())]
