"""A full disk: the turn continues, the error is reported, and pending rows are written later."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.harness import SpriteProcess, observations, rows, sprite_process
from tests.inspection import (
    chat,
    durable_events,
    endings,
    journal,
    learnings,
    observation_of,
    request_seen,
    workspace_db,
)
from tests.scripted_model import OfflineModel


@contextmanager
def full_disk(sprite: SpriteProcess) -> Iterator[None]:
    """Fail every write that grows a file of the sprite within the block, as on a full disk.

    The limit is set on the running process; its agent, started before, is not affected.
    """
    pid = sprite.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)


async def test_full_disk_delays_turns_and_curations(model: OfflineModel, workspace: Path) -> None:
    async with sprite_process(workspace, model.url) as sprite, sprite.client() as client:
        await chat(client, "Hello there")
        model.script.agent({"match": "echo during", "delay": 1.0, "on": "prompt"})
        mission = client.send("mission", {"text": "run `echo during`"})
        await request_seen(model, lambda r: "echo during" in r.user_text)
        await client.event("started")
        with full_disk(sprite):
            told = await client.until(lambda m: m["type"] == "error")
            assert told["payload"]["code"] == "storage"
            assert (await client.end_of(mission))["event"] == "complete"
            refused = await client.ask("mission", {"text": "Hello on a full disk"})
            assert (refused["type"], refused["payload"]["code"]) == ("error", "storage")
            refused = await client.ask("system", {"action": "new_session"})
            assert (refused["type"], refused["payload"]["code"]) == ("error", "storage")
            assert len(observations(workspace)) == 1
        await chat(client, "My name is Ada Lovelace.")
        kept = observation_of(workspace, mission)
        assert kept["outcome"] == "complete"
        assert [call["result"] for call in kept["tool_calls"]] == ["during"]
        assert [o["user_message"] for o in observations(workspace)] == [
            "Hello there",
            "run `echo during`",
            "My name is Ada Lovelace.",
        ]
        assert journal(workspace) == []
        folder = workspace / ".os/memory"
        # The curation stays pending, and no partial file is left.
        before = {path.name: path.read_bytes() for path in folder.glob("*.md")}
        with full_disk(sprite):
            status = (await client.ask("system", {"action": "flush"}))["payload"]
            assert "disk cannot be written" in status["last_error"]
            assert status["memory"]["waiting"] == 3
            assert {path.name: path.read_bytes() for path in folder.glob("*.md")} == before
        assert (await client.ask("system", {"action": "flush"}))["payload"]["memory"]["waiting"] == 0
        assert "Ada Lovelace" in (folder / "user.md").read_text()
        assert any("Ada Lovelace" in content for content in learnings(workspace))
        assert {path.name for path in folder.glob("*.md")} == set(before)
        assert not list(folder.glob(".*"))
    written = durable_events(workspace)
    assert [event["seq"] for event in written] == list(range(1, len(written) + 1))
    assert endings(workspace)[mission] == ["complete"]
    assert workspace_db(workspace, "SELECT * FROM missions WHERE status IN ('queued', 'running')") == []
    for path in (".os/memory/transcript.db", ".os/memory/memory.db", ".os/workspace.db"):
        assert rows(workspace / path, "PRAGMA integrity_check") == [{"integrity_check": "ok"}]
