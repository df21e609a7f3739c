"""A workspace that an earlier version wrote (`fixtures/workspace-0.1.0.tar.gz`): it opens, rebuilds, and goes on.

It holds sessions, batches, edits by page, hand and pin, a superseded learning, a resolved action, and a forget.
"""

from __future__ import annotations

import json
import random
import secrets
import shutil
import sqlite3
import tarfile
from pathlib import Path
from typing import Any

import pytest

from bridge.offline.model import OfflineModel
from sprite.memory.files import CURATED
from tests.command_line import command, killable_commands, rebuild, restart_server
from tests.curated_workspace import without_marks
from tests.harness import ROOT, dump, running_sprite
from tests.inspection import chat, curations, eventually, learnings, observation_of, transcript

WRITTEN = ROOT / "tests/fixtures/workspace-0.1.0.tar.gz"


@pytest.fixture
def older(tmp_path: Path) -> Path:
    workspace = tmp_path / "workspace"
    with tarfile.open(WRITTEN) as archive:
        archive.extractall(workspace, filter="data")
    return workspace


def memory_of(workspace: Path) -> dict[str, Any]:
    folder = workspace / ".os/memory"
    return {**dump(folder / "memory.db"), **{name: (folder / name).read_bytes() for name in CURATED}}


def columns_of(path: Path) -> dict[str, list[str]]:
    """The tables of a database with their columns, but for full text, whose segments SQLite arranges as it likes."""
    with sqlite3.connect(path) as connection:
        tables = [r[0] for r in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {
            table: [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            for table in tables
            if "fts" not in table
        }


def rows_of(path: Path, columns: dict[str, list[str]]) -> dict[str, list[tuple[Any, ...]]]:
    """What stands in these columns; a newer version may have added others."""
    with sqlite3.connect(path) as connection:
        found = {
            table: sorted(connection.execute(f"SELECT {', '.join(names)} FROM {table}"), key=repr)
            for table, names in columns.items()
        }
    # How an action stands is said in other words since.
    today = {"pending": "open", "completed": "done"}
    actions = found.get("pending_actions", [])
    return {**found, "pending_actions": [tuple(today.get(value, value) for value in row) for row in actions]}


async def test_it_opens_and_nothing_in_it_changes(older: Path) -> None:
    paths = [older / ".os" / name for name in ("memory/transcript.db", "memory/memory.db", "workspace.db")]
    columns = [columns_of(path) for path in paths]
    before = [rows_of(path, names) for path, names in zip(paths, columns, strict=True)]
    files = {name: (older / ".os/memory" / name).read_bytes() for name in CURATED}
    await restart_server(older)
    assert [rows_of(path, names) for path, names in zip(paths, columns, strict=True)] == before
    assert {name: (older / ".os/memory" / name).read_bytes() for name in CURATED} == files


async def test_its_memory_is_rebuilt_to_the_same_bytes(older: Path) -> None:
    path = older / ".os/memory/transcript.db"
    await restart_server(older)
    columns = columns_of(path)
    before, log = memory_of(older), rows_of(path, columns)
    assert len(before["learnings"]) > 5
    await rebuild(older)
    assert without_marks(memory_of(older)) == without_marks(before)
    for name in ("memory.db", *CURATED):
        (older / ".os/memory" / name).unlink()
    await restart_server(older)
    assert without_marks(memory_of(older)) == without_marks(before)
    assert rows_of(path, columns) == log


async def test_a_turn_that_is_set_aside_there_changes_nothing_of_what_was(older: Path, model: OfflineModel) -> None:
    known, events = learnings(older), curations(older)
    model.script.curator({"error": 400, "match": "xyzzy", "times": -1})
    async with running_sprite(older, model.url) as sprite, sprite.client() as client:
        await chat(client, "My codeword is xyzzy.", "My favourite colour is green.")
        await client.ask("system", {"action": "flush"})
        await eventually(
            lambda: not transcript(older, "SELECT 1 FROM observations WHERE processed = 0"), "all is settled"
        )
    assert set(known) < set(learnings(older))
    assert curations(older)[: len(events)] == events
    assert [row["kind"] for row in curations(older)[len(events) :]] in (
        ["quarantine", "batch"],
        ["batch", "quarantine"],
    )
    before = memory_of(older)
    await rebuild(older)
    assert without_marks(memory_of(older)) == without_marks(before)


async def test_it_goes_on(older: Path, model: OfflineModel) -> None:
    known, events, turns = learnings(older), curations(older), transcript(older, "SELECT * FROM observations")
    async with running_sprite(older, model.url) as sprite, sprite.client() as client:
        (mission,) = await chat(client, "What is my codename?")
        assert "Zanzibar" in observation_of(older, mission)["agent_response"]
        await chat(client, "My favourite colour is green.")
        await client.ask("system", {"action": "flush"})
    assert set(known) < set(learnings(older))
    assert curations(older)[: len(events)] == events
    assert [row["id"] for row in transcript(older, "SELECT id FROM observations ORDER BY id")] == list(
        range(1, len(turns) + 3)
    )
    with sqlite3.connect(older / ".os/memory/transcript.db") as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


async def test_a_doctor_who_looks_at_it_before_the_first_start_does_not_hold_an_update_up(older: Path) -> None:
    _, out, err = await command(older, "doctor", "--without-model", "--json")
    findings = {finding["check"]: finding for finding in json.loads(out)}
    assert err == ""
    assert findings["memory"]["ok"]
    assert "brings the file up to date" in findings["memory"]["detail"]


async def test_killed_at_any_moment_of_being_brought_up_to_date_it_is_brought_there_by_the_next_start(
    older: Path, tmp_path: Path
) -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")  # noqa: T201 - pytest shows it where the test fails
    rng = random.Random(seed)  # noqa: S311 - no secret
    names = ("memory/transcript.db", "memory/memory.db", "workspace.db")
    columns = {name: columns_of(older / ".os" / name) for name in names}
    before = {name: rows_of(older / ".os" / name, columns[name]) for name in names}
    async with killable_commands() as killable:
        code, seconds = await killable.run(shutil.copytree(older, tmp_path / "whole"), "memory", "accept", "user.md")
        assert code == 2, "it has opened all three, and nothing waits"
        for life in range(10):
            workspace = shutil.copytree(older, tmp_path / str(life))
            await killable.run(workspace, "memory", "accept", "user.md", seconds=seconds * rng.uniform(0.0, 1.0))
            await restart_server(workspace)
            assert {name: rows_of(workspace / ".os" / name, columns[name]) for name in names} == before
            assert not list(workspace.glob(".os/memory/*-*Z*")), "nothing was set aside"
