"""Pipes and folders in `.os/run` are refused or removed, without blocking."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from sprite.common.files import clear
from sprite.config import Settings
from sprite.errors import OperatorError
from sprite.gateway.uploads import Uploads
from sprite.memory.folders import LAST_ERROR, last_error, make_folders, note_error, refuse_what_is_no_file


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    settings = Settings(tmp_path)
    make_folders(settings)
    return settings


@pytest.mark.parametrize("name", ["agent", "cli", "token", "lock", "boot.md", LAST_ERROR])
def test_folder_in_place_of_file_is_refused(settings: Settings, name: str) -> None:
    (settings.run / name).mkdir()
    with pytest.raises(OperatorError, match=f"run/{name} is a folder"):
        refuse_what_is_no_file(settings)


@pytest.mark.parametrize("name", ["agent", "cli", "anything", "boot/x.md", "uploads/part", "claude/settings.json"])
def test_pipe_in_run_is_refused(settings: Settings, name: str) -> None:
    (settings.run / name).parent.mkdir(exist_ok=True)
    os.mkfifo(settings.run / name)
    with pytest.raises(OperatorError, match=f"run/{name} is (a pipe|no file)"):
        refuse_what_is_no_file(settings)


@pytest.mark.parametrize("name", ["boot", "uploads", "claude"])
def test_pipe_in_place_of_folder_is_refused(settings: Settings, name: str) -> None:
    os.mkfifo(settings.run / name)
    with pytest.raises(OperatorError, match=f"run/{name} is (a pipe|no folder)"):
        refuse_what_is_no_file(settings)


def test_last_error_ignores_pipe(settings: Settings) -> None:
    os.mkfifo(settings.run / LAST_ERROR)
    assert last_error(settings.run) is None
    note_error(settings.run, "it failed")
    assert last_error(settings.run) == "it failed"


def test_leftover_folders_are_removed(settings: Settings) -> None:
    parts = settings.run / "uploads"
    (parts / "folder/below").mkdir(parents=True)
    (parts / "part").touch()
    Uploads(settings.documents, parts).prepare()
    assert list(parts.iterdir()) == []
    (parts / "kept").touch()
    os.mkfifo(parts / "pipe")
    clear(parts, {"kept", "pipe"})
    assert [path.name for path in parts.iterdir()] == ["kept"]
