"""A workspace that an earlier version wrote (`fixtures/workspace-0.1.0.tar.gz`): it opens, rebuilds, and goes on.

It holds sessions, batches, edits by page, hand and pin, a superseded learning, a resolved action, and a forget.
"""

from __future__ import annotations

import sqlite3
import tarfile
from pathlib import Path
from typing import Any

import pytest

from bridge.offline.model import OfflineModel
from sprite.memory.files import CURATED
from tests.command_line import rebuild, restart_server
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


def log_of(workspace: Path) -> dict[str, Any]:
    """The log's rows, without its full text (whose segments SQLite arranges as it likes)."""
    dumped = dump(workspace / ".os/memory/transcript.db")
    return {name: rows for name, rows in dumped.items() if "fts" not in name}


async def test_it_opens_and_nothing_in_it_changes(older: Path) -> None:
    before, log, people = memory_of(older), log_of(older), dump(older / ".os/workspace.db")
    await restart_server(older)
    assert memory_of(older) == before
    assert log_of(older) == log
    assert dump(older / ".os/workspace.db") == people


async def test_its_memory_is_rebuilt_to_the_same_bytes(older: Path) -> None:
    before, log = memory_of(older), log_of(older)
    assert len(before["learnings"]) > 5
    await rebuild(older)
    assert without_marks(memory_of(older)) == without_marks(before)
    for name in ("memory.db", *CURATED):
        (older / ".os/memory" / name).unlink()
    await restart_server(older)
    assert without_marks(memory_of(older)) == without_marks(before)
    assert log_of(older) == log


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
