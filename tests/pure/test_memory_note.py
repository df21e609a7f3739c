"""The note with which Claude Code's plugin finds this machine's memory."""

from __future__ import annotations

import sys
from pathlib import Path

from bridge.db import data_folder as memory_note


def leave(note: Path, workspace: Path, *, takes_over: bool = False) -> str:
    memory_note.leave(note, workspace, Path("/code"), takes_over=takes_over)
    return note.read_text()


def test_note_locates_memory_for_owner_only(tmp_path: Path) -> None:
    note = tmp_path / "new/sprite/claude-code"
    lines = leave(note, tmp_path / "with = and spaces").splitlines()
    assert lines[1:] == [f"workspace={tmp_path}/with = and spaces", f"python={sys.executable}", "code=/code"]
    assert note.stat().st_mode & 0o777 == 0o600
    assert [path.name for path in note.parent.iterdir()] == ["claude-code"]


def test_other_bridges_note_is_kept_while_valid(tmp_path: Path) -> None:
    """It is replaced if its memory is gone, or if this bridge has priority."""
    note, one, two = tmp_path / "note", tmp_path / "one", tmp_path / "two"
    one.mkdir()
    leave(note, one)
    assert str(one) in leave(note, two)
    assert str(two) in leave(note, two, takes_over=True)
    assert str(one) in leave(note, one), "the memory in the note never existed"
    one.rmdir()
    assert str(two) in leave(note, two)


def test_unwritable_or_unreadable_note_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    memory_note.leave(tmp_path / "file/note", tmp_path, tmp_path, takes_over=True)
    (tmp_path / "note").write_bytes(b"\xff\0\nworkspace")
    assert f"workspace={tmp_path}" in leave(tmp_path / "note", tmp_path)
    memory_note.leave(tmp_path / "other", tmp_path / "a\nb", tmp_path, takes_over=True)
    assert not (tmp_path / "other").exists()
