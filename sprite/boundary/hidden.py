"""Hidden places outside `.os/`: the bridge's data, and the keys in home directories.

Whole folders are hidden, because programs replace their files, and new files must be hidden as well.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from sprite.config import Settings, home_folders, xdg_folders

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
