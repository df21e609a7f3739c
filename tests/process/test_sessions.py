"""Sessions start and end, memory stays; lost, edited, foreign and damaged files."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from sprite.errors import OperatorError
from sprite.memory.files import CURATED
from tests.harness import dump, running_sprite
from tests.inspection import chat, curations, learnings, memory, memory_file, prompts, transcript
from tests.memory_stores import SESSION, open_stores
from tests.scripted_model import OfflineModel


async def test_new_session_has_memory_without_conversation(model: OfflineModel, workspace: Path) -> None:
    """A session ends after twelve idle hours and on request; external edits become versions that the curator sees."""
    user = workspace / ".os/memory/user.md"
    user.parent.mkdir(parents=True)
    # The state of a sprite that was killed while idle.
    async with open_stores(user.parent) as stores:
        await stores.transcript.link_cli_session(SESSION, str(uuid.uuid4()))
        for text in ("My name is Ada Lovelace.", "No, it should be DD/MM/YYYY for dates."):
            await stores.turn(text)
    with _database(user.parent / "transcript.db") as db:
        db.execute("UPDATE sessions SET last_active_at = last_active_at - 12 * 3600 - 1")
    async with running_sprite(workspace, model.url) as sprite, sprite.client() as client:
        await chat(client, "Hello, purple elephants")
        (request,) = prompts(model, "purple elephants")
        assert "Ada Lovelace" in str(request.body["system"])
        assert "DD/MM/YYYY" in str(request.body["system"])
        assert "My name is Ada" not in str(request.body["messages"])
        idle, _ = transcript(workspace, "SELECT * FROM sessions ORDER BY started_at")
        assert idle["ended_at"] is not None
        user.write_text(user.read_text() + "\n- Drinks tea, by hand\n")
        await chat(client, *("Hello, purple elephants" for _ in range(3)), "I prefer short answers.")
        status = await client.ask("system", {"action": "new_session"})
        assert status["payload"]["session"]["session_id"] is None
        assert status["payload"]["memory"]["waiting"] == 0
        asked = [request for request in model.requests if request.kind == "curator"]
        assert "Drinks tea, by hand" in str(asked[-1].body["messages"])
        history = await client.ask("memory", {"op": "history", "name": "user.md"})
        assert [v["source"] for v in history["payload"]["history"]] == ["curator", "person", "curator"]
        assert "Drinks tea, by hand" in memory_file(workspace, "user.md")
        _, ended = transcript(workspace, "SELECT * FROM sessions ORDER BY started_at")
        assert ended["ended_at"] is not None
        assert (ended["message_count"], ended["observation_count"]) == (5, 5)
        await chat(client, "Hello again")
        (request,) = prompts(model, "Hello again")
        assert "Ada Lovelace" in str(request.body["system"])
        assert "purple elephants" not in str(request.body)
        _, first, second = transcript(workspace, "SELECT * FROM sessions ORDER BY started_at")
        assert second["ended_at"] is None
        assert first["cli_session_id"] != second["cli_session_id"]
    assert all(session["ended_at"] for session in transcript(workspace, "SELECT * FROM sessions"))
    assert [c["kind"] for c in curations(workspace)] == ["batch", "edit", "batch"]
    user.write_text("# User\n\n- Edited while it slept\n")
    async with running_sprite(workspace, model.url) as sprite, sprite.client() as client:
        await client.ask("system", {"action": "flush"})
        file = (await client.ask("memory", {"op": "file", "name": "user.md"}))["payload"]
        assert "Edited while it slept" in file["content"]
    assert [c["kind"] for c in curations(workspace)][:4] == ["batch", "edit", "batch", "edit"]


async def test_lost_memory_is_rebuilt_without_model(model: OfflineModel, curated: Path, tmp_path: Path) -> None:
    workspace = shutil.copytree(curated, tmp_path / "workspace")
    folder = workspace / ".os/memory"
    async with running_sprite(workspace, model.url) as sprite, sprite.client() as client:
        actions = (await client.ask("memory", {"op": "actions"}))["payload"]["actions"]
        await client.ask("memory", {"op": "resolve_action", "id": actions[0]["id"], "status": "done"})
        modes = {
            path: stat.S_IMODE((workspace / path).stat().st_mode) for path in (".os", ".os/run/token", ".os/memory")
        }
        assert modes == {".os": 0o700, ".os/run/token": 0o600, ".os/memory": 0o700}
        token = sprite.token
    before = dump(folder / "memory.db")
    files = {name: (folder / name).read_bytes() for name in CURATED}
    assert before["learnings"]
    assert b"Ada" in files["user.md"]
    for lost in folder.glob("memory.db*"):
        lost.unlink()
    (folder / "user.md").unlink()
    (folder / "tools.md").unlink()
    async with running_sprite(workspace, model.url) as sprite:
        assert sprite.token == token
    assert dump(folder / "memory.db") == before
    assert {name: (folder / name).read_bytes() for name in CURATED} == files
    assert _curator_calls(model) == 0


async def test_damaged_memory_database_is_replaced_by_rebuild(
    model: OfflineModel, curated: Path, tmp_path: Path
) -> None:
    """The damaged file is kept aside."""
    workspace = shutil.copytree(curated, tmp_path / "workspace")
    folder = workspace / ".os/memory"
    before = dump(folder / "memory.db")
    garbage = b"this is no database" * 100
    (folder / "memory.db").write_bytes(garbage)
    async with running_sprite(workspace, model.url):
        pass
    (aside,) = folder.glob("memory.db.bad-*")
    assert aside.read_bytes() == garbage
    assert dump(folder / "memory.db") == before
    assert _curator_calls(model) == 0
    assert any("Ada" in content for content in learnings(workspace))
    assert memory(workspace, "PRAGMA integrity_check") == [{"integrity_check": "ok"}]


@pytest.mark.parametrize("name", [".os/memory/transcript.db", ".os/workspace.db"])
async def test_foreign_or_damaged_database_stops_start(workspace: Path, name: str) -> None:
    """The file is left unchanged."""
    path = workspace / name
    path.parent.mkdir(parents=True)
    path.write_bytes(b"this is no database" * 100)
    await _refused(workspace, path, "is damaged or not a SQLite database")
    path.unlink()
    with _database(path) as db:
        db.execute("CREATE TABLE theirs (precious)")
        db.execute("INSERT INTO theirs VALUES ('data')")
    await _refused(workspace, path, "not Sprite's")


async def test_damaged_database_page_stops_start(curated: Path, tmp_path: Path) -> None:
    workspace = shutil.copytree(curated, tmp_path / "workspace")
    path = workspace / ".os/memory/transcript.db"
    content = bytearray(path.read_bytes())
    content[4096 * 3 : 4096 * 5] = b"\xff" * 8192
    path.write_bytes(content)
    await _refused(workspace, path, "damaged")


async def _refused(workspace: Path, path: Path, words: str) -> None:
    before = path.read_bytes()
    with pytest.raises(OperatorError, match=words) as refusal:
        async with running_sprite(workspace, None):
            pass
    assert str(path) in str(refusal.value)
    assert path.read_bytes() == before


def _curator_calls(model: OfflineModel) -> int:
    return sum(request.kind == "curator" for request in model.requests)


@contextlib.contextmanager
def _database(path: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        yield db
