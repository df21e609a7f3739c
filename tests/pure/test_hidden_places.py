"""Hidden paths: the places on disk that the sandbox hides from the agent."""

from __future__ import annotations

from pathlib import Path

import pytest

from sprite.config import Settings
from sprite.sandbox.cell import _is_block_device
from sprite.sandbox.sandbox import hidden_places, plan_of


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    home = tmp_path / "home"
    for folder in (".aws", ".config/gh", ".cargo/bin", ".pyenv", "elsewhere/ssh", "xdg/gh"):
        (home / folder).mkdir(parents=True)
    (home / ".netrc").touch()
    (home / ".ssh").symlink_to("elsewhere/ssh")
    (home / ".kube").symlink_to("nowhere")
    (home / ".docker").symlink_to("/dev/null")
    monkeypatch.setenv("HOME", str(home))
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.delenv(name, raising=False)
    return home


def found(home: Path, settings: Settings) -> list[str]:
    """Return the hidden places below the home directory; the real home of the user is hidden as well."""
    places = hidden_places(settings)
    return [str(place.relative_to(home)) for place in places if place.is_relative_to(home)]


def test_linked_keys_are_hidden_and_toolchains_visible(home: Path) -> None:
    assert found(home, Settings(home / "work")) == [".aws", ".config/gh", ".netrc", "elsewhere/ssh"]


def test_workspace_equal_to_home_hides_keys(home: Path) -> None:
    plan = plan_of(Settings(home), None)
    hidden = {path for path, _ in plan["hide"]}
    assert {str(home / name) for name in (".os", ".aws", ".config/gh", "elsewhere/ssh")} <= hidden
    assert str(home) not in hidden
    assert str(home / ".netrc") in plan["close"]


def test_xdg_variables_move_places(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "xdg"))
    assert "xdg/gh" in found(home, Settings(home / "work"))


def test_vm_home_belongs_to_agent(home: Path) -> None:
    socket = home / "api.sock"
    settings = Settings(home / "work", vm_socket=socket, bridge_data=home / "data")
    (home / "data").mkdir()
    assert ".aws" in found(home, settings)
    socket.touch()
    assert found(home, settings) == ["data"]


def test_workspace_stays_visible_in_nested_hidden_folders(home: Path) -> None:
    """Its `.os` is hidden again, except the CLI's state in it."""
    workspace = home / ".aws/data/workspaces/ada"
    settings = Settings(workspace, bridge_data=home / ".aws/data")
    for folder in (settings.memory, settings.cli_state):
        folder.mkdir(parents=True)
    settings.boot_prompt.touch()
    hide = {path: inside for path, inside in plan_of(settings, None)["hide"] if path.startswith(str(home / ".aws"))}
    assert hide == {
        str(home / ".aws"): [(str(workspace), True)],
        str(settings.system): [(str(settings.cli_state), True), (str(settings.boot_prompt), False)],
    }


def test_vanishing_file_is_no_block_device(tmp_path: Path) -> None:
    """Files in /dev/shm come and go during the scan."""
    assert not _is_block_device(str(tmp_path / "gone"))
