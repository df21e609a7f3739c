"""What the sandbox does with which path: hidden, private, shown, writable or protected."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sprite.config import Settings
from sprite.sandbox.places import Kind, hidden_places, protected, rules


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    for folder in (".aws", ".config/gh", ".cargo/bin", ".pyenv", ".npm", "elsewhere/ssh", "xdg/gh"):
        (home / folder).mkdir(parents=True)
    (home / ".netrc").touch()
    (home / ".ssh").symlink_to("elsewhere/ssh")
    (home / ".kube").symlink_to("nowhere")
    (home / ".docker").symlink_to("/dev/null")
    monkeypatch.setenv("HOME", str(home))
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    return home


def settings_of(workspace: Path, **chosen: Any) -> Settings:
    settings = Settings(workspace, **chosen)
    for folder in (settings.memory, settings.cli_state):
        folder.mkdir(parents=True, exist_ok=True)
    return settings


def below(folder: Path, found: dict[Path, Kind]) -> dict[str, Kind]:
    return {str(place.relative_to(folder)): kind for place, kind in found.items() if place.is_relative_to(folder)}


def found(home: Path, settings: Settings) -> list[str]:
    """Return the hidden places below the home directory; the real home of the user is hidden as well."""
    places = hidden_places(settings)
    return [str(place.relative_to(home)) for place in places if place.is_relative_to(home)]


def test_linked_keys_are_hidden(home: Path) -> None:
    assert found(home, Settings(home / "work")) == [".aws", ".config/gh", ".netrc", "elsewhere/ssh"]


def test_home_is_private_but_for_toolchains_and_workspace(home: Path) -> None:
    assert below(home, rules(settings_of(home / "work"))) == {
        ".": "private",
        ".cargo/bin": "show",
        ".npm": "cache",
        ".pyenv": "show",
        "work": "write",
        "work/.os": "hide",
        "work/.os/run/claude": "write",
    }


def test_workspace_equal_to_home_hides_keys(home: Path) -> None:
    kinds = below(home, rules(settings_of(home)))
    assert kinds["."] == "write"
    assert {kinds[name] for name in (".os", ".aws", ".config/gh", "elsewhere/ssh", ".netrc")} == {"hide"}
    assert ".cargo/bin" not in kinds


def test_xdg_variables_move_places(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "xdg"))
    assert "xdg/gh" in found(home, Settings(home / "work"))


def test_vm_home_belongs_to_agent(home: Path) -> None:
    socket_file = home / "api.sock"
    settings = settings_of(home / "work", vm_socket=socket_file, bridge_data=home / "data")
    (home / "data").mkdir()
    assert ".aws" in found(home, settings)
    socket_file.touch()
    assert found(home, settings) == ["data"]
    kinds = below(home, rules(settings))
    assert {kinds[name] for name in ("api.sock", "data", "work/.os")} == {"hide"}
    # A mount cannot be renamed.
    assert kinds["."] == "write"


def test_workspace_stays_visible_in_hidden_folder(home: Path) -> None:
    """Its `.os` is hidden again, except the CLI's state and the boot prompt."""
    workspace = home / "data/workspaces/ada"
    settings = settings_of(workspace, bridge_data=home / "data")
    settings.boot_prompt.touch()
    assert below(home / "data", rules(settings)) == {
        ".": "hide",
        "workspaces": "private",
        "workspaces/ada": "write",
        "workspaces/ada/.os": "hide",
        "workspaces/ada/.os/run/boot.md": "protect",
        "workspaces/ada/.os/run/claude": "write",
    }


def test_files_that_run_later_are_protected(tmp_path: Path) -> None:
    for folder in ("a/b/.git/objects", "a/b/.git/modules/sub/objects", "node_modules/x", ".vscode"):
        (tmp_path / folder).mkdir(parents=True)
    for name in ("a/b/.git/HEAD", "a/b/.git/config", "a/b/.git/modules/sub/HEAD", ".envrc", "node_modules/x/.envrc"):
        (tmp_path / name).touch()
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/.git").write_text("gitdir: elsewhere")
    kinds = below(tmp_path, protected(tmp_path))
    assert {name for name, kind in kinds.items() if kind == "protect"} == {
        *(".envrc", ".vscode", "tree/.git", "a/b/.git/config", "a/b/.git/hooks", "a/b/.git/modules/sub/hooks"),
    }
    assert {"a", "a/b", "a/b/.git", "tree"} <= {name for name, kind in kinds.items() if kind == "write"}
