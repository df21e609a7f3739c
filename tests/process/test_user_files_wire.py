"""User files of a running sprite: listed and deleted over the wire; changes reported to the agent and to memory."""

from __future__ import annotations

import base64
import json
import os
import uuid
from pathlib import Path
from typing import Any

from sprite.protocol.tools import DEEDS_CALL, LOOK_CALL
from tests.harness import Client, observations, running_sprite, sprite_process
from tests.inspection import chat, prompts
from tests.memory_stores import seed_turns
from tests.scripted_model import OfflineModel


async def upload(client: Client, name: str, data: bytes) -> str:
    chunk = {"upload_id": str(uuid.uuid4()), "name": name, "index": 0, "last": True, "data": base64.b64encode(data)}
    chunk["data"] = base64.b64encode(data).decode()
    return str((await client.ask("file_upload", chunk))["payload"]["path"])


async def asked(client: Client, op: str, **more: Any) -> dict[str, Any]:
    answer: dict[str, Any] = await client.ask("memory", {"op": op, **more})
    return answer


async def test_files_are_listed_newest_first_and_deleted(model: OfflineModel, workspace: Path) -> None:
    async with running_sprite(workspace, model.url) as sprite, sprite.client() as client:
        for number, name in enumerate((b"documents/old.pdf", b"artifacts/not \xff utf-8.csv", b"ocr/new.txt")):
            path = workspace / os.fsdecode(name)
            path.write_bytes(b"x" * number)
            os.utime(path, (1_000 + number, 1_000 + number))
        listed = (await asked(client, "user_files"))["payload"]
        assert [(row["path"], row["size"], row["modified_at"]) for row in listed["files"]] == [
            ("ocr/new.txt", 2, 1_002.0),
            ("artifacts/not \uf7ff utf-8.csv", 1, 1_001.0),
            ("documents/old.pdf", 0, 1_000.0),
        ]
        assert not listed.get("more")
        only = (await asked(client, "user_files", folder="documents"))["payload"]["files"]
        assert [row["path"] for row in only] == ["documents/old.pdf"]
        for row in listed["files"]:
            assert (await asked(client, "delete_user_file", path=row["path"]))["type"] == "memory_result"
        assert (await asked(client, "user_files"))["payload"]["files"] == []
        for none in ("documents/old.pdf", "documents", ".os/run/token", "../x", "documents/../.os/run/token"):
            refused = await asked(client, "delete_user_file", path=none)
            assert (refused["type"], refused["payload"]["code"]) == ("error", "not_found")
        assert (await asked(client, "user_files", folder="skills"))["payload"]["code"] == "not_found"
        assert (workspace / ".os/run/token").exists()


async def test_upload_is_reported_once_after_kill(model: OfflineModel, workspace: Path) -> None:
    async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
        await upload(client, "lease.pdf", b"x" * 12_345)
        await sprite.kill()
    async with running_sprite(workspace, model.url) as again, again.client() as client:
        await chat(client, "What do you say to that?")
        path = await upload(client, "rent.csv", b"a,b\n")
        await chat(client, f"Read it, please.\n\n{path}")
    words = "The person uploaded documents/lease.pdf, 12 kB."
    assert words.encode() in prompts(model, "What do you say to that?")[0].raw
    told = [[call for call in row["tool_calls"] if call["name"] == DEEDS_CALL] for row in turns(workspace)]
    assert [[call["result"] for call in calls] for calls in told] == [[words], []]


async def test_external_file_change_reaches_curator_and_session(model: OfflineModel, workspace: Path) -> None:
    await seed_turns(workspace, "Hello there, my name is Ana.")
    async with running_sprite(workspace, model.url) as sprite, sprite.client() as client:
        (workspace / "documents/lease.pdf").write_bytes(b"x")
        await client.ask("system", {"action": "flush"})
        (workspace / "documents/lease.pdf").rename(workspace / "documents/lease-2026.pdf")
        await chat(client, "What is new?")
        await client.ask("system", {"action": "flush"})
    looks = [row for row in turns(workspace) if [call["name"] for call in row["tool_calls"]] == [LOOK_CALL]]
    # One look per curated batch.
    assert [row["trigger"] for row in looks] == ["task", "task"]
    results = [row["tool_calls"][0]["result"] for row in looks]
    assert results[0].startswith("added: documents/lease.pdf (1 byte, ")
    assert results[1].startswith("deleted: documents/lease.pdf\nadded: documents/lease-2026.pdf (1 byte, ")
    assert [LOOK_CALL in request.user_text for request in model.requests if request.kind == "curator"] == [True, True]
    boot = (workspace / ".os/run/boot.md").read_text(encoding="utf-8")
    assert "<files_changed>\n- deleted: documents/lease.pdf\n- added: documents/lease-2026.pdf (1 byte, " in boot


def turns(workspace: Path) -> list[dict[str, Any]]:
    return [{**row, "tool_calls": json.loads(row["tool_calls_json"])} for row in observations(workspace)]
