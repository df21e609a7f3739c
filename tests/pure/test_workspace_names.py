"""File names shared by the sprite and its hosts."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.config import Settings as BridgeSettings
from bridge.config import from_environment as bridge_environment
from bridge.db import data_folder
from bridge.providers import provider as workspace
from sprite.common.settings import default_data
from sprite.config import Settings, from_environment
from sprite.memory.folders import USER_FOLDERS
from sprite.sandbox.places import bridge_folders


def test_host_and_sprite_agree_on_file_paths() -> None:
    sprite = Settings(Path("/w"))
    system = sprite.workspace / workspace.SYSTEM
    assert system == sprite.system
    assert [system / name for name in (workspace.LOCK, workspace.TOKEN, workspace.ADDRESS, workspace.MEMORY)] == [
        sprite.lock,
        sprite.token_file,
        sprite.address_file,
        sprite.memory,
    ]
    assert (system / workspace.CHAT_HISTORY).parent == sprite.run
    assert {sprite.documents.name, *USER_FOLDERS} >= workspace.SHARED_FOLDERS


def test_sprite_finds_data_folder_of_bridge(tmp_path: Path) -> None:
    """The lock's name is written in both programs."""
    own = Settings(tmp_path / "data/workspaces/ada")
    assert bridge_folders(own) == []
    with data_folder.owned(BridgeSettings(data=tmp_path / "data")):
        assert bridge_folders(own) == [tmp_path / "data"]


def test_both_programs_use_same_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_DATA_HOME", "HOME", "SPRITE_DATA"):
        monkeypatch.setenv(name, f" {tmp_path}")
        assert from_environment(tmp_path, {}).bridge_data == bridge_environment().data == default_data()
    assert default_data() == tmp_path
