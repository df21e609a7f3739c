"""soul.md and os.md follow the deployed code unless they were edited manually."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sprite.memory.files import AT_WORK, DEPLOYED, SHIPPED, MemoryFiles, sha256, template


@pytest.fixture
def files(tmp_path: Path) -> MemoryFiles:
    return MemoryFiles(tmp_path)


def test_missing_file_is_created_and_old_default_replaced(files: MemoryFiles, tmp_path: Path) -> None:
    files.ensure()
    assert [files.read(name) for name in DEPLOYED] == [template(name) for name in DEPLOYED]
    # As another version would have left it.
    (tmp_path / "os.md").write_text("# OS of another day\n")
    (tmp_path / SHIPPED).write_text(json.dumps({"os.md": sha256("# OS of another day\n")}))
    assert files.edited() == []
    files.ensure()
    assert files.read("os.md") == template("os.md")


@pytest.mark.parametrize("note", [None, "", "[]", '{"soul.md": 1}', '{"soul.md": "' + "0" * 64 + '"}'])
def test_manual_edit_is_kept_and_reported(files: MemoryFiles, tmp_path: Path, note: str | None) -> None:
    files.ensure()
    (tmp_path / "soul.md").write_text("# Soul\n\nBe brief.\n")
    if note is not None:
        (tmp_path / SHIPPED).write_text(note)
    files.ensure()
    assert files.read("soul.md") == "# Soul\n\nBe brief.\n"
    assert files.edited() == ["soul.md"]
    (tmp_path / "soul.md").unlink()
    files.ensure()
    assert files.edited() == []


def test_change_during_interrupted_turn_awaits_drift_check(files: MemoryFiles, tmp_path: Path) -> None:
    (tmp_path / "os.md").write_text("older\n")
    (tmp_path / SHIPPED).write_text(json.dumps({"os.md": sha256("older\n")}))
    (tmp_path / AT_WORK).write_text("{}")
    files.ensure()
    assert files.read("os.md") == "older\n"
