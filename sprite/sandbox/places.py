"""Places on disk that the sandbox hides, shows or protects. See docs/security.md for the reasons."""

from __future__ import annotations

import os
import re
import sys
from collections import deque
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple

from sprite.config import Settings, home_folders, is_root, xdg_folders

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
    """Return the existing files and folders that the sandbox hides, with links resolved; outer ones first."""
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

#: Below a home directory, read-only in the sandbox: toolchains, and git's identity.
_TOOLCHAINS = (
    *(".cargo/bin", ".rustup", ".nvm", ".volta", ".fnm", ".local/share/fnm", ".bun", ".deno/bin", ".local/share/pnpm"),
    *(".pyenv", ".local/bin", ".local/lib", ".local/share/uv", ".local/share/pipx", ".local/share/mise", ".asdf"),
    *("miniconda3", "anaconda3", "miniforge3", ".rbenv", ".gem", ".sdkman", ".jenv", ".dotnet", ".ghcup", ".cabal/bin"),
    *(".opam", ".juliaup", ".julia", ".elan", "go/bin", "sdk", "flutter", ".nix-profile", ".gitconfig"),
    *(".config/git/config", ".config/git/ignore"),
)
#: Below a home directory: seen, with writes that end with the session. A changed cache would be run later, outside.
_CACHES = (
    *(".npm", ".cache/pip", ".cache/uv", ".cache/yarn", ".cache/pnpm", ".cache/node", ".cache/node-gyp", ".cache/deno"),
    *(".cache/go-build", "go/pkg", ".cargo/registry", ".cargo/git", ".cache/pypoetry", ".cache/pre-commit", ".gradle"),
    *(".m2", ".nuget", ".cache/huggingface", ".cache/ms-playwright", ".cache/ccache", ".cache/sccache", ".cache/bazel"),
)
#: Hidden on a person's machine, beside the home directories: others' files, and the sockets of services.
OTHERS_PLACES = ("/home", "/root", "/media", "/mnt", "/run", "/srv", "/tmp", "/var/run", "/var/tmp")  # noqa: S108
#: Root can read these, and a person's programs do not need them.
_ROOTS_KEYS = ("/etc/shadow", "/etc/shadow-", "/etc/gshadow", "/etc/gshadow-", "/etc/ssh", "/etc/ssl/private")
#: Names in the workspace of what other programs run or obey when a person enters or opens the folder.
RUNS_LATER = frozenset(
    ".envrc .direnv .mcp.json .claude .vscode .idea .husky .npmrc .bashrc .bash_profile .bash_login .bash_logout "
    ".profile .zshrc .zshenv .zprofile .zlogin .zlogout .vimrc .exrc .nvimrc .dir-locals.el".split()
)
#: Parts of a git folder from which git takes programs.
_GIT_RUNS = ("hooks", "config", "config.worktree", "commondir")
#: The search for such files: depth, and number of folders.
_DEEPEST, _MOST_FOLDERS = 4, 2000
_SKIPPED = frozenset({"node_modules", ".venv", "venv", "__pycache__", ".os"})
#: Flags of a socket that accepts connections, in /proc/net/unix.
_LISTENS = "00010000"

#: The sandbox's treatment of a path. `hide`: an empty folder, or a closed file. `private`: an empty folder that ends
#: with the session. `show`: read-only, where its surroundings are hidden. `cache`: the same, with writes that end with
#: the session. `write`: writable. `protect`: read-only.
Kind = Literal["hide", "private", "show", "cache", "write", "protect"]


def rules(settings: Settings) -> dict[Path, Kind]:
    """Return what the sandbox does with paths, outer ones first. All others stay as they are on the machine."""
    workspace, mounts, on_vm = settings.workspace.resolve(), list(_mounts()), settings.vm_socket.exists()
    wanted: dict[Path, Kind] = {} if on_vm else _persons_machine(workspace)
    hidden = [settings.system.resolve(), *hidden_places(settings)]
    aliases = [alias for place in hidden for alias in _aliases(place, mounts)]
    for place in (*hidden, *aliases, *service_doors(settings)):
        if place.exists():
            wanted[place.resolve()] = "hide"
    wanted |= {workspace: "write", settings.cli_state.resolve(): "write"}
    wanted |= {settings.boot_prompt.resolve(): "protect"} if settings.boot_prompt.exists() else {}
    wanted |= protected(workspace)
    # A mount of its own cannot be renamed. Elsewhere the folders around are read-only or gone.
    closed = [place for place, kind in wanted.items() if kind == "hide"] if on_vm else []
    pins = {outer for place in (workspace, *closed) for outer in place.parents} - {Path("/"), *wanted}
    wanted |= dict.fromkeys(pins, "write" if on_vm else "private")
    return nested(wanted, needed={*own_homes(), *workspace.parents}, pins=pins)


def nested(wanted: dict[Path, Kind], needed: Collection[Path] = (), pins: Collection[Path] = ()) -> dict[Path, Kind]:
    """Return the rules that are needed beside the rules for folders around them, outer paths first.

    A rule to hide a place inside a hidden one is left out, unless the place is in `needed`. A rule for one of the
    `pins` is returned only inside a hidden place.
    """
    found: dict[Path, Kind] = {}
    for place, kind in sorted(wanted.items()):
        around = next((found[outer] for outer in place.parents if outer in found), None)
        is_gone = around in {"hide", "private"}
        if kind in {"hide", "private"}:
            # Inside an empty place it would only tell that it is there.
            is_needed = (not is_gone or place in needed) and (place not in pins or is_gone)
        else:
            is_needed = is_gone or kind in {"write", "protect"}
        if is_needed:
            found[place] = kind
    return found


def service_doors(settings: Settings) -> list[Path]:
    """Return the sockets of services that would run a program outside the sandbox, whether they exist or not."""
    return [settings.vm_socket, *(Path(door.format(user=os.geteuid())) for door in SERVICE_DOORS)]


def _persons_machine(workspace: Path) -> dict[Path, Kind]:
    """Return the rules for a machine that is no VM: home directories, other people's files, and sockets."""
    folders = {Path(place) for place in OTHERS_PLACES if Path(place).is_dir() and not Path(place).is_symlink()}
    folders |= {home.resolve() for home in home_folders() if home.is_dir()}
    found: dict[Path, Kind] = {place: "private" for place in folders if not place.is_relative_to(workspace)}
    found |= toolchains()
    for home in own_homes():
        found |= {home / name: "cache" for name in _CACHES if (home / name).is_dir()}
    keys = [Path(place) for place in _ROOTS_KEYS if is_root() and os.path.lexists(place)]
    return found | dict.fromkeys((*keys, *_listening_sockets()), "hide") | {Path(sys.base_prefix).resolve(): "show"}


def toolchains() -> dict[Path, Kind]:
    """Return the rules that show toolchains in the home directories."""
    return {home / name: "show" for home in own_homes() for name in _TOOLCHAINS if (home / name).exists()}


def own_homes() -> list[Path]:
    """Return the home directories of this user alone, with links resolved."""
    return list(dict.fromkeys(home.resolve() for home in home_folders(everyone=False)))


def _listening_sockets() -> Iterator[Path]:
    """Yield the socket files on which programs of this machine listen: a network namespace does not close them."""
    with suppress(OSError):
        for line in Path("/proc/net/unix").read_text(errors="surrogateescape").splitlines():
            *_, flags, _type, _state, _inode, path = ("", "", "", *line.split(maxsplit=7))[-5:]
            if flags == _LISTENS and path.startswith("/") and Path(path).exists():
                yield Path(path).resolve()


def protected(workspace: Path) -> dict[Path, Kind]:
    """Return the rules that keep programs from changing what programs outside would run later.

    They make it read-only. The folders above it become mounts, so that they cannot be renamed and replaced by
    others.
    """
    found: dict[Path, Kind] = {}
    for place in runs_later(workspace):
        real = place.resolve()
        if real.is_relative_to(workspace) and real.exists():
            around = [outer for outer in real.parents if outer != workspace and outer.is_relative_to(workspace)]
            found = {**dict.fromkeys(around, "write"), **found, real: "protect"}
    return found


def runs_later(workspace: Path) -> Iterator[Path]:
    """Yield files and folders of the workspace from which programs outside the sandbox would run something."""
    waiting = deque([(workspace, 0)])
    for _ in range(_MOST_FOLDERS):
        if not waiting:
            return
        folder, depth = waiting.popleft()
        try:
            entries = {entry.name: entry for entry in os.scandir(folder)}
        except OSError:
            continue
        if "HEAD" in entries and not entries.keys().isdisjoint({"objects", "commondir"}):
            # A git folder, also of a submodule or worktree. Git does not mind an empty folder for hooks.
            with suppress(OSError):
                (folder / "hooks").mkdir(exist_ok=True)
            yield from (folder / name for name in _GIT_RUNS if (folder / name).exists())
            waiting += [(folder / name, depth) for name in ("modules", "worktrees") if name in entries]
            continue
        for name, entry in entries.items():
            if name in RUNS_LATER or (name == ".git" and not entry.is_dir(follow_symlinks=False)):
                yield folder / name
            elif depth < _DEEPEST and name not in _SKIPPED and entry.is_dir(follow_symlinks=False):
                waiting.append((folder / name, depth + 1))


#: Keys of a repository's configuration that name no program; git writes these itself. One line of a file each.
_HARMLESS_LINE = re.compile(
    r"""\s*(?:[#;].*|\[(?:core|user|init|lfs|extensions|(?:remote|branch|submodule)\ "[^"\\]+")\]|(?:bare|filemode
    |repositoryformatversion|logallrefupdates|ignorecase|precomposeunicode|symlinks|worktree|name|email|defaultbranch
    |objectformat|worktreeconfig|url|fetch|remote|merge|rebase|active)\ =\ [^\\"]*)?\s*""",
    re.VERBOSE | re.IGNORECASE,
)
_WORKTREE = re.compile(r"\s*worktree =(.*)", re.IGNORECASE)
_MOST_LINES = 1000


def runs_nothing(place: Path, workspace: Path) -> bool:
    """Return whether a path from `runs_later` is as git creates it, so that nothing in it would be run."""
    try:
        match place.name:
            case "hooks":
                return all(hook.suffix == ".sample" for hook in place.iterdir())
            case "config" | "config.worktree":
                lines = place.read_text(errors="replace").splitlines()
                trees = [place.parent / found[1].strip() for found in map(_WORKTREE.fullmatch, lines) if found]
                is_inside = all(tree.resolve().is_relative_to(workspace) for tree in trees)
                return is_inside and len(lines) < _MOST_LINES and all(map(_HARMLESS_LINE.fullmatch, lines))
            case "commondir":
                return place.parent.parent.name == "worktrees" and place.read_text().strip() == "../.."
            case ".git":
                folder = (place.parent / place.read_text().removeprefix("gitdir: ").strip()).resolve()
                return _SKIPPED.isdisjoint(folder.parts) and not {"worktrees", "modules"}.isdisjoint(folder.parts)
    except (OSError, ValueError):
        pass
    return False


class _Mount(NamedTuple):
    """A mount, a line of /proc/self/mountinfo: device, folder on the device, and mount point."""

    device: str
    root: Path
    point: Path


def _aliases(place: Path, mounts: list[_Mount]) -> list[Path]:
    """Return the other paths at which a file or folder, or a part of it, is mounted."""
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
