"""File changes of a real agent's turns: counted at the end, shown and undone over the wire and by the commands."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from sprite.__main__ import main
from sprite.protocol.events import Complete, Started
from sprite.protocol.memory import ChangesResult, UndoResult
from sprite.protocol.shapes import ChangedFile, FileCounts
from tests.chat_stage import in_a_pipe
from tests.harness import PATIENCE, Client, running_sprite, sprite_process
from tests.inspection import SharedSprite, prompts, shared_sprite
from tests.looks import eventually
from tests.scripted_model import OfflineModel

#: Marks tests that share one sprite, in this order.
shared = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="home")
async def _home(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SharedSprite]:
    folder = tmp_path_factory.mktemp("undo")
    note = folder / "workspace/documents/note.txt"
    note.parent.mkdir(parents=True)
    note.write_text("one\n")
    async with shared_sprite(folder) as home:
        yield home


async def asked(client: Client, op: str, **more: Any) -> dict[str, Any]:
    answer: dict[str, Any] = (await client.ask("memory", {"op": op, **more}))["payload"]
    return answer


async def upload(client: Client, name: str, data: bytes) -> str:
    chunk = {"upload_id": name, "name": name, "index": 0, "last": True, "data": base64.b64encode(data).decode()}
    return str((await client.ask("file_upload", chunk))["payload"]["path"])


async def until_snapshot(client: Client) -> None:
    """Wait for the first snapshot: then a turn without changes is known to have none."""
    async with asyncio.timeout(PATIENCE):
        while "being taken" in (await asked(client, "changes")).get("message", ""):  # noqa: ASYNC110 - nothing announces it
            await asyncio.sleep(0.02)


@shared
async def test_turn_is_counted_shown_and_undone(home: SharedSprite) -> None:
    model, note = home.model, home.workspace / "documents/note.txt"
    async with home.client() as client:
        await until_snapshot(client)
        model.script.agent(
            {"tool": "Bash", "input": {"command": "echo two >> documents/note.txt; touch documents/new"}}
        )
        ended = await client.mission("Change it.")
        assert ended["changes"] == {"added": 1, "modified": 1, "deleted": 0}
        shown = await asked(client, "changes", turn=ended["mission_id"])
        assert [(file["path"], file.get("yours", False), file.get("diff")) for file in shown["files"]] == [
            ("documents/new", False, ""),
            ("documents/note.txt", False, "@@ -1 +1,2 @@\n one\n+two"),
        ]
        assert (await asked(client, "changes", turn=str(shown["turn_id"])))["turn"] == ended["mission_id"]
        undone = await asked(client, "undo", turn=ended["mission_id"])
        assert (undone["restored"], note.read_text()) == (["documents/new", "documents/note.txt"], "one\n")
        line = (await asked(client, "chat"))["chat"][-1]
        assert line["changes"] == ended["changes"]
        hits = (await asked(client, "search", query="Change it"))["hits"]
        assert [hit.get("undone") for hit in hits] == [True]
        rest = await client.mission("Hello again.")
        assert rest.get("changes") is None
        told = prompts(model, "Hello again.")[0].raw
        assert b"The person undid your change of documents/note.txt." in told
        await client.ask("system", {"action": "flush"})
        curated = [each for each in model.requests if b"undone=" in each.raw]
        assert len(curated) == 1
        await asked(client, "undo", turn=undone["undo"])
        assert note.read_text() == "one\ntwo\n"


@shared
async def test_edit_between_turns_is_the_persons(home: SharedSprite) -> None:
    model, report = home.model, home.workspace / "report.md"
    async with home.client() as client:
        await until_snapshot(client)
        report.write_text("my work\n")
        model.script.agent({"tool": "Bash", "input": {"command": "sed -i s/work/WORK/ report.md"}})
        ended = await client.mission("Change the report.")
        assert (ended["changes"], report.read_text()) == ({"added": 0, "modified": 1, "deleted": 0}, "my WORK\n")
        await asked(client, "undo")
        assert report.read_text() == "my work\n"


@shared
async def test_upload_during_turn_is_maybe_yours(home: SharedSprite) -> None:
    model, workspace = home.model, home.workspace
    async with home.client() as client:
        await until_snapshot(client)
        waiting = "touch here; until [ -e go ]; do sleep 0.02; done; rm go here"
        model.script.agent({"tool": "Bash", "input": {"command": waiting}})
        mission = client.send("mission", {"text": "Wait."})
        # What the person does before the first call begins is no change of the turn.
        await eventually((workspace / "here").exists, "the command has begun")
        assert (await asked(client, "undo"))["code"] == "busy"
        path = await upload(client, "mine.txt", b"mine")
        (workspace / "go").touch()
        await client.end_of(mission)
        undone = await asked(client, "undo", turn=mission)
        assert (undone["restored"], undone["yours"]) == ([], [path])
        assert (workspace / path).exists()


@shared
async def test_forget_removes_contents_and_names(home: SharedSprite) -> None:
    model, workspace = home.model, home.workspace
    async with home.client() as client:
        await until_snapshot(client)
        model.script.agent({"tool": "Bash", "input": {"command": "echo Zorblat > documents/zorblat-plan.txt"}})
        first = await client.mission("Write the plan.")
        model.script.agent({"tool": "Bash", "input": {"command": "rm documents/z*"}})
        await client.mission("Delete the plan.")
        assert (await asked(client, "changes", turn=first["mission_id"]))["files"]
        gone = await asked(client, "forget", text="zorblat", yes=True)
        assert gone["forgotten"]["still"] == []
        assert (await asked(client, "changes", turn=first["mission_id"]))["files"] == []
    found = [path for path in (workspace / ".os").rglob("*") if path.is_file() and b"orblat" in path.read_bytes()]
    assert found == []


async def test_changes_of_killed_turn_are_kept(model: OfflineModel, workspace: Path) -> None:
    async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
        await until_snapshot(client)
        model.script.agent({"tool": "Bash", "input": {"command": "echo x > documents/half.txt; sleep 600"}})
        mission = client.send("mission", {"text": "Begin."})
        await client.event("tool_use")
        async with asyncio.timeout(PATIENCE):
            while not (workspace / "documents/half.txt").exists():  # noqa: ASYNC110 - a file
                await asyncio.sleep(0.02)
        await sprite.kill()
    async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
        undone = await asked(client, "undo", turn=mission)
        assert (undone["restored"], undone["yours"]) == (["documents/half.txt"], [])
        assert not (workspace / "documents/half.txt").exists()


async def test_commands_work_with_and_without_sprite(
    model: OfflineModel, workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running_sprite(workspace, model.url) as sprite, sprite.client() as client:
        await until_snapshot(client)
        model.script.agent({"tool": "Bash", "input": {"command": "echo x > documents/x.txt"}})
        await client.mission("Write it.")
        here = ["--workspace", str(workspace)]
        assert await asyncio.to_thread(main, ["changes", "--diff", *here]) == 0
        assert "+ documents/x.txt\n@@" in capsys.readouterr().out
    assert await asyncio.to_thread(main, ["undo", "--json", *here]) == 0
    undone = json.loads(capsys.readouterr().out)
    assert undone["restored"] == ["documents/x.txt"]
    (workspace / "documents/x.txt").write_text("mine")
    assert await asyncio.to_thread(main, ["undo", "undo", *here]) == 1
    assert "changed again since then (restored only with --over): documents/x.txt" in capsys.readouterr().out


async def test_terminal_shows_changes_and_undoes_named_files() -> None:
    files = [ChangedFile("documents/a\x1b[2J.txt", "modified", kept=True, diff="@@ -1 +1 @@\n-one\n+two")]
    async with in_a_pipe() as chat:
        chat.type("Tidy up.\n")
        mission = str((await chat.visitor.receive("mission"))["id"])
        ended = Complete(mission, "Done.", None, None, 1, FileCounts(1, 2, 0))
        await chat.visitor.send(Started(mission), seq=1)
        await chat.visitor.send(ended, seq=2)
        await chat.until_seen("3 files changed: /changes shows, /undo takes back")
        chat.type("/changes\n")
        message = await chat.visitor.receive("memory")
        assert message["payload"] == {"op": "changes"}
        await chat.visitor.send(ChangesResult("m1", 7, 0.0, files), reply_to=str(message["id"]))
        await chat.until_seen("+two")
        assert "Turn 7" in chat.seen
        assert "\x1b[2J" not in chat.seen
        chat.type("/undo 7 'documents/a b.txt' --over c\n")
        message = await chat.visitor.receive("memory")
        assert message["payload"] == {"op": "undo", "turn": "7", "paths": ["documents/a b.txt"], "over": ["c"]}
        result = UndoResult("m1", "undo-1", ["documents/a b.txt"], ["c"], [], [])
        await chat.visitor.send(result, reply_to=str(message["id"]))
        await chat.until_seen("/undo undo takes this back.")
        assert "changed again since then, so not restored" in chat.seen
