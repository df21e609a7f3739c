"""`import` of other programs' data: files written by the programs themselves, and their documented formats."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from sprite.cli.import_logs import import_logs
from sprite.config import Settings
from sprite.curation.provenance.voices import Turn, Voice
from sprite.log.transcript import read_transcript
from tests.elsewhere import (
    HOUSE,
    SECRET,
    claude_mem,
    imported,
    json_lines,
)
from tests.looks import observations, rows

PROMPT = {
    "type": "user",
    "uuid": "u1",
    "sessionId": "5b1c7a52-0000-4000-8000-000000000001",
    "timestamp": "2026-01-20T07:00:00Z",
    "message": {"role": "user", "content": "I prefer tea."},
}


async def voices_of(workspace: Path, words: str) -> list[Voice]:
    """Return the texts of the log's turns that have these words, with their speakers."""
    async with read_transcript(workspace / ".os/memory/transcript.db") as transcript:
        turns = await transcript.observations_after(0, 2**62)
    return [voice for turn in turns for voice in Turn(turn).voices if words in voice.text]


async def test_claude_mem_prompt_is_persons_summary_nobodys(
    workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = await imported(workspace, claude_mem(tmp_path / "claude-mem.db"), capsys=capsys)
    assert (told["code"], told["files"], told["sessions"], told["turns"]) == (0, 1, 2, 5)
    turns = observations(workspace)
    assert [turn["user_message"][:20] for turn in turns] == [
        "I prefer tea. Find o",
        "Then mend it, please",
        "When are the roses w",
        "Make it seven",
        "",
    ]
    assert [turn["timestamp"] for turn in turns][2:] == [1764406860.0, 1764407040.0, 1764407100.0]
    # A tool call reveals the folder; a mere name is no project.
    assert [turn["project"] for turn in turns] == [HOUSE, HOUSE, None, None, None]
    assert "'garden'" in turns[2]["notice"]
    assert SECRET not in (workspace / ".os/memory/transcript.db").read_bytes().decode(errors="replace")
    assert {(voice.origin, voice.kind) for voice in await voices_of(workspace, "roses dry")} == {("outside", "outside")}
    assert {voice.kind for voice in await voices_of(workspace, "I prefer tea")} == {"source"}


async def test_claude_mem_database_is_read_only_with_journal(
    workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = claude_mem(tmp_path / "live/claude-mem.db")
    with sqlite3.connect(path, isolation_level=None) as writer:
        writer.execute("PRAGMA wal_autocheckpoint = 0")
        writer.execute("UPDATE user_prompts SET prompt_text = 'Only in the journal' WHERE id = 2")
        # It is being written to, as by claude-mem's worker.
        writer.execute("BEGIN IMMEDIATE")
        before = {file.name: file.read_bytes() for file in path.parent.iterdir() if not file.name.endswith("-shm")}
        told = await imported(workspace, path, capsys=capsys)
        writer.execute("COMMIT")
        after = {file.name: file.read_bytes() for file in path.parent.iterdir() if not file.name.endswith("-shm")}
    writer.close()
    assert (told["turns"], before == after) == (5, True)
    assert "Only in the journal" in {turn["user_message"] for turn in observations(workspace)}


async def test_prompts_known_from_claude_code_are_not_duplicated(
    workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    json_lines(tmp_path / "all/a.jsonl", [PROMPT])
    claude_mem(tmp_path / "all/claude-mem.db")
    told = await imported(workspace, tmp_path / "all", capsys=capsys)
    assert told["kinds"]["claude-mem"]["turns"] == 3
    assert told["not_understood"] == {"claude-mem prompts of sessions that the log has whole": 2}


async def test_import_is_idempotent_and_dry_run_writes_nothing(
    workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mem = claude_mem(tmp_path / "claude-mem.db")
    would = await imported(workspace, mem, capsys=capsys, dry_run=True)
    assert not (workspace / ".os").exists()
    told = await imported(workspace, mem, capsys=capsys)
    assert {**would, "waiting": told["waiting"]} == told
    assert told["kinds"] == {"claude-mem": {"turns": 5, "already_imported": 0}}
    before = observations(workspace)
    again = await imported(workspace, tmp_path, capsys=capsys)
    assert (again["turns"], again["already_imported"], again["sessions"]) == (0, 5, 0)
    assert observations(workspace) == before
    sessions = rows(workspace / ".os/memory/transcript.db", "SELECT * FROM sessions")
    assert {row["id"].partition("/")[0] for row in sessions} == {"claude-mem"}


async def test_report_counts_turns_by_source(
    workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    json_lines(tmp_path / "all/a.jsonl", [PROMPT])
    claude_mem(tmp_path / "all/claude-mem.db")
    code = await import_logs(Settings(workspace), [tmp_path / "all"], dry_run=False, as_json=False)
    assert code == 0
    out = capsys.readouterr().out
    assert "Imported 4 turn(s) of 2 session(s) from 2 file(s); 0 were in the log already." in out
    assert "claude-code: 1, claude-mem: 3" in out


async def test_off_record_request_applies_to_imported_turns(
    workspace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = claude_mem(tmp_path / "claude-mem.db")
    with sqlite3.connect(path) as connection:
        private = "Ring <private>the clinic on Elm Street</private> first"
        connection.execute("UPDATE user_prompts SET prompt_text = ?", (private,))
        told = f"I rang the clinic on Elm Street with {SECRET}"
        connection.execute("UPDATE tool_uses SET tool_response = ?", (told,))
        connection.execute("UPDATE observations SET narrative = ?", (told,))
    connection.close()
    await imported(workspace, path, capsys=capsys)
    whole = json.dumps(observations(workspace))
    assert "Elm Street" not in whole
    assert SECRET not in whole
