"""Hostile files of other programs: rejected or reported, without crash, hang or full disk."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import pytest

from sprite.imports.claude_mem import NotClaudeMemError, open_claude_mem
from sprite.imports.finding import READERS
from sprite.imports.reader import MAX_KINDS, Surroundings, Tally
from tests.elsewhere import claude_mem

NOW = 1_800_000_000.0


def read(kind: str, *paths: Path) -> tuple[list[Any], Tally]:
    """Return a reader's result for files, read as the given kind."""
    tally = Tally()
    (reader,) = [reader for reader in READERS if reader.kind == kind]
    around = Surroundings(NOW, lambda folder: folder if isinstance(folder, str) else None)
    return list(reader.read(list(paths), around, tally)), tally


def test_names_of_skipped_things_are_bounded() -> None:
    tally = Tally()
    for number in range(5000):
        tally.passed_over(f"kind {number}")
    assert len(tally.not_understood) == MAX_KINDS + 1
    assert tally.not_understood.total() == 5000


def test_database_with_views_or_triggers_is_safe(tmp_path: Path) -> None:
    trap = tmp_path / "trap.db"
    with sqlite3.connect(trap) as connection:
        connection.executescript(
            "CREATE TABLE t (x); CREATE VIEW sdk_sessions AS WITH RECURSIVE n(i) AS "
            "(SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i AS id FROM n; "
            "CREATE VIEW user_prompts AS SELECT 1 AS id;"
        )
    connection.close()
    turns, tally = read("claude-mem", trap)
    assert turns == []
    assert "no table" in tally.refusals[0].reason
    with pytest.raises(NotClaudeMemError), open_claude_mem(trap):
        pass
    armed = claude_mem(tmp_path / "armed.db")
    with sqlite3.connect(armed) as connection:
        connection.execute("DROP TABLE tool_uses")
        connection.execute("CREATE VIEW tool_uses AS SELECT * FROM sdk_sessions, user_prompts, schema_versions")
        connection.execute("CREATE TRIGGER gone AFTER INSERT ON user_prompts BEGIN DELETE FROM user_prompts; END")
    connection.close()
    turns, _ = read("claude-mem", armed)
    assert len(turns) == 5


def test_odd_rows_are_reported_and_others_imported(tmp_path: Path) -> None:
    path = claude_mem(tmp_path / "claude-mem.db")
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        for number, (at, text) in enumerate(
            [("never", "x"), (b"\xff\xfe", b"\xff\x00\xfe"), (4e18, "y"), (1767225600, "in seconds"), (None or -5, "z")]
        ):
            connection.execute(
                "INSERT INTO user_prompts (session_db_id, content_session_id, prompt_number, prompt_text, created_at, "
                "created_at_epoch) VALUES (1, '5b1c7a52-0000-4000-8000-000000000001', ?, ?, 'x', ?)",
                (100 + number, text, at),
            )
        connection.execute("UPDATE observations SET facts = '[' || replace(hex(zeroblob(100000)), '0', '[')")
        connection.execute("UPDATE observations SET narrative = zeroblob(3000000) WHERE id = 1")
        connection.execute("UPDATE sdk_sessions SET project = char(27) || '[31m' || char(10) || 'x'")
    connection.close()
    turns, tally = read("claude-mem", path)
    assert [turn.observation.user_message for turn in turns].count("in seconds") == 1
    assert len(turns) == 6
    assert tally.damaged == 4


@pytest.mark.parametrize("cut", [0, 100, 5000, 20_000])
def test_damaged_database_is_reported(cut: int, tmp_path: Path) -> None:
    path = claude_mem(tmp_path / "claude-mem.db")
    path.write_bytes(path.read_bytes()[:cut] + b"\0" * 10)
    _, tally = read("claude-mem", path)
    assert tally.refusals
