"""Sessions begin and end, and memory passes over; files that are lost, edited, foreign or damaged on the way."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.offline.model import OfflineModel
from sprite.memory.files import CURATED
from tests.harness import dump, sprite_process, started_sprite
from tests.inspection import (
    chat,
    curations,
    learnings,
    memory,
    memory_file,
    prompts,
    transcript,
)


async def test_a_new_session_has_the_memory_of_the_old_one_and_not_its_conversation(
    model: OfflineModel, workspace: Path
) -> None:
    async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
        await chat(client, "My name is Ada Lovelace.", *("Hello, purple elephants" for _ in range(4)))
        status = await client.ask("system", {"action": "new_session"})
        assert status["payload"]["session"]["session_id"] is None
        assert status["payload"]["memory"]["waiting"] == 0
        (ended,) = transcript(workspace, "SELECT * FROM sessions")
        assert ended["ended_at"] is not None
        assert (ended["message_count"], ended["observation_count"]) == (5, 5)
        await chat(client, "Hello again")
    (request,) = prompts(model, "Hello again")
    assert "Ada Lovelace" in str(request.body["system"])
    assert "purple elephants" not in str(request.body)
    sessions = transcript(workspace, "SELECT * FROM sessions ORDER BY started_at")
    assert len(sessions) == 2
    assert all(session["ended_at"] for session in sessions)
    assert sessions[0]["cli_session_id"] != sessions[1]["cli_session_id"]


async def test_a_fact_and_a_correction_are_known_in_the_session_after_a_kill(
    model: OfflineModel, workspace: Path
) -> None:
    async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
        await chat(client, "My name is Ada Lovelace.", "No, it should be DD/MM/YYYY for dates.")
        await sprite.kill()
    assert curations(workspace) == []
    async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
        await client.ask("system", {"action": "new_session"})
        await chat(client, "Hello again")
    prompt = str(prompts(model, "Hello again")[0].body["system"])
    assert "Ada Lovelace" in prompt
    assert "DD/MM/YYYY" in prompt
    assert "My name is Ada" not in str(prompts(model, "Hello again")[0].body["messages"])


async def test_what_no_curator_has_read_yet_is_in_the_next_sessions_prompt_as_turns(
    model: OfflineModel, workspace: Path
) -> None:
    model.script.curator({"error": 500, "times": -1})
    async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
        await chat(client, "My name is Ada Lovelace.")
        await client.ask("system", {"action": "new_session"})
        await chat(client, "Hello again")
        assert "My name is Ada Lovelace." in str(prompts(model, "Hello again")[0].body["system"])
        await sprite.kill()


async def test_a_mission_after_twelve_idle_hours_begins_a_new_session(model: OfflineModel, workspace: Path) -> None:
    async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
        await chat(client, "Hello, purple elephants")
        await sprite.kill()
    with _database(workspace / ".os/memory/transcript.db") as db:
        db.execute("UPDATE sessions SET last_active_at = last_active_at - 12 * 3600 - 1")
    async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
        await chat(client, "Hello again")
        assert "purple elephants" not in str(prompts(model, "Hello again")[0].body["messages"])
        first, second = transcript(workspace, "SELECT * FROM sessions ORDER BY started_at")
        assert first["ended_at"] is not None
        assert second["ended_at"] is None


async def test_a_lost_memory_and_lost_files_come_back_from_the_log_without_a_model(
    model: OfflineModel, workspace: Path
) -> None:
    folder = workspace / ".os/memory"
    async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
        await chat(client, "My name is Ada Lovelace.", "Remember to call Bob.", "I prefer short answers.")
        await client.ask("system", {"action": "flush"})
        await client.ask("memory", {"op": "resolve_action", "id": 1, "status": "done"})
        await chat(client, "No, it should be DD/MM/YYYY for dates.")
    before = dump(folder / "memory.db")
    files = {name: (folder / name).read_bytes() for name in CURATED}
    assert before["learnings"]
    assert b"Ada" in files["user.md"]
    calls = _curator_calls(model)
    for lost in folder.glob("memory.db*"):
        lost.unlink()
    (folder / "user.md").unlink()
    (folder / "tools.md").unlink()
    async with sprite_process(workspace, model.url):
        pass
    assert dump(folder / "memory.db") == before
    assert {name: (folder / name).read_bytes() for name in CURATED} == files
    assert _curator_calls(model) == calls


async def test_an_edit_by_hand_is_kept_as_a_version_and_is_what_the_curator_sees_next(
    model: OfflineModel, workspace: Path
) -> None:
    user = workspace / ".os/memory/user.md"
    async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
        await chat(client, "My name is Ada Lovelace.")
        await client.ask("system", {"action": "flush"})
        user.write_text(user.read_text() + "\n- Drinks tea, by hand\n")
        await chat(client, "I prefer short answers.")
        await client.ask("system", {"action": "flush"})
        seen = str(model.requests[-1].body["messages"])
        assert model.requests[-1].kind == "curator"
        assert "Drinks tea, by hand" in seen
        history = await client.ask("memory", {"op": "history", "name": "user.md"})
        assert [v["source"] for v in history["payload"]["history"]] == ["curator", "person", "curator"]
    assert [c["kind"] for c in curations(workspace)] == ["batch", "edit", "batch"]
    assert "Drinks tea, by hand" in memory_file(workspace, "user.md")
    user.write_text("# User\n\n- Edited while it slept\n")
    async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
        await chat(client, "Hello again")
        assert "Edited while it slept" in str(prompts(model, "Hello again")[0].body["system"])
    assert [c["kind"] for c in curations(workspace)][:4] == ["batch", "edit", "batch", "edit"]


async def test_a_memory_database_that_cannot_be_used_is_set_aside_and_rebuilt(
    model: OfflineModel, curated: Path, tmp_path: Path
) -> None:
    workspace = shutil.copytree(curated, tmp_path / "workspace")
    folder = workspace / ".os/memory"
    before = dump(folder / "memory.db")
    garbage = b"this is no database" * 100
    (folder / "memory.db").write_bytes(garbage)
    async with sprite_process(workspace, model.url):
        pass
    (aside,) = folder.glob("memory.db.bad-*")
    assert aside.read_bytes() == garbage
    assert dump(folder / "memory.db") == before
    assert _curator_calls(model) == 0
    assert any("Ada" in content for content in learnings(workspace))
    assert memory(workspace, "PRAGMA integrity_check") == [{"integrity_check": "ok"}]


@pytest.mark.parametrize("name", [".os/memory/transcript.db", ".os/workspace.db"])
async def test_a_foreign_or_damaged_database_is_refused_and_left_as_it_is(
    model: OfflineModel, workspace: Path, name: str
) -> None:
    path = workspace / name
    path.parent.mkdir(parents=True)
    path.write_bytes(b"this is no database" * 100)
    await _refused(model, workspace, path, "is damaged or is no SQLite database")
    path.unlink()
    with _database(path) as db:
        db.execute("CREATE TABLE theirs (precious)")
        db.execute("INSERT INTO theirs VALUES ('data')")
    await _refused(model, workspace, path, "not Sprite's")


async def test_a_database_with_a_damaged_page_is_refused_and_left_as_it_is(
    model: OfflineModel, curated: Path, tmp_path: Path
) -> None:
    workspace = shutil.copytree(curated, tmp_path / "workspace")
    path = workspace / ".os/memory/transcript.db"
    content = bytearray(path.read_bytes())
    content[4096 * 3 : 4096 * 5] = b"\xff" * 8192
    path.write_bytes(content)
    await _refused(model, workspace, path, "damaged")


async def test_a_second_sprite_on_the_same_workspace_is_refused_and_the_first_works_on(
    model: OfflineModel, workspace: Path
) -> None:
    async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
        async with started_sprite(workspace, model.url) as second:
            assert await second.wait() == 2
        # The first one may write there as well.
        (refusal,) = (line for line in _words(workspace) if "already owns" in line)
        assert str(sprite.process.pid) in refusal
        await chat(client, "Hello there")
        assert (workspace / ".os/run/address").read_text().strip() == f"{sprite.host}:{sprite.port}"


async def test_what_the_sprite_keeps_is_readable_by_its_owner_only(model: OfflineModel, workspace: Path) -> None:
    async with sprite_process(workspace, model.url) as sprite:
        modes = {
            path: stat.S_IMODE((workspace / path).stat().st_mode) for path in (".os", ".os/run/token", ".os/memory")
        }
        assert modes == {".os": 0o700, ".os/run/token": 0o600, ".os/memory": 0o700}
        token = sprite.token
    async with sprite_process(workspace, model.url) as sprite:
        assert sprite.token == token


async def _refused(model: OfflineModel, workspace: Path, path: Path, words: str) -> None:
    before = path.read_bytes()
    async with started_sprite(workspace, model.url) as process:
        assert await process.wait() == 2
    last = _words(workspace)[-1]
    assert words in last
    assert str(path) in last
    assert "Traceback" not in last
    assert path.read_bytes() == before


def _words(workspace: Path) -> list[str]:
    return (workspace.parent / "stderr.log").read_text().splitlines()


def _curator_calls(model: OfflineModel) -> int:
    return sum(request.kind == "curator" for request in model.requests)


@contextlib.contextmanager
def _database(path: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        yield db
