"""Events to a client: durable and gapless, with replay on resume; and the order of replies."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from sprite.gateway.dispatch import Gateway
from sprite.log.curations import Drift
from sprite.protocol.shapes import MemoryState
from sprite.search.view import MemoryView
from sprite.workspace.database import EVENTS_KEPT
from tests.harness import Client, SpriteServer, running_sprite
from tests.inspection import SharedSprite, chat, durable_events, observation_of, prompts, request_seen, shared_sprite

shared = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="home")
async def _home(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SharedSprite]:
    async with shared_sprite(tmp_path_factory.mktemp("events")) as home:
        yield home


@shared
async def test_interrupt_before_agent_start_ends_mission(home: SharedSprite) -> None:
    async with home.client() as client:
        mission = client.send("mission", {"text": "Hello, stop early"})
        await client.event("started")
        client.send("interrupt")
        assert (await client.end_of(mission))["event"] == "interrupted"
        assert observation_of(home.workspace, mission)["outcome"] == "interrupted"
        assert not prompts(home.model, "Hello, stop early")
        assert (await client.mission("Hello again"))["event"] == "complete"


@shared
async def test_slow_turn_does_not_delay_other_requests(home: SharedSprite) -> None:
    """Only the heartbeat waits for the end of the turn."""
    home.model.script.agent({"match": "slowly", "delay": 0.3})
    async with home.client() as client:
        mission = client.send("mission", {"text": "Hello, slowly"})
        await request_seen(home.model, lambda r: "slowly" in r.user_text)
        heartbeat = client.send("heartbeat")
        status = client.send("system", {"action": "status"})
        search = client.send("memory", {"op": "search", "query": "anything"})
        stack = client.send("canvas_interaction", {"action": "create_stack", "name": "Beside"})
        await client.reply(heartbeat)
        answered = [m["reply_to"] for m in client.received if m.get("reply_to")]
        assert set(answered) == {mission, status, search, stack, heartbeat}
        assert answered[-1] == heartbeat
        assert [e["event"] for e in client.events(mission)][-1] == "complete"


@shared
async def test_running_command_shows_its_output(home: SharedSprite) -> None:
    async with home.client() as client:
        mission = client.send("mission", {"text": "run `echo first; until [ -e go ]; do sleep 0.05; done`"})
        output = await client.event("tool_output")
        assert (output["text"], output["mission_id"]) == ("first", mission)
        (home.workspace / "go").touch()
        assert (await client.end_of(mission))["event"] == "complete"
    assert "tool_output" not in {event["payload"].get("event") for event in durable_events(home.workspace)}


@shared
async def test_chat_keeps_tools_and_turn_status(home: SharedSprite) -> None:
    async with home.client() as client:
        used = client.send("mission", {"text": "run `echo one\necho two`"})
        await client.end_of(used)
        failed = client.send("mission", {"text": "run `ls /nowhere`"})
        await client.end_of(failed)
        stopped = client.send("mission", {"text": "run `python3 -c 'import time; time.sleep(30)'`"})
        await client.event("tool_use")
        await client.ask("interrupt")
        await client.end_of(stopped)
    async with home.client() as client:
        sync = (await client.until(lambda m: m["type"] == "state_sync"))["payload"]
        older = await client.ask("memory", {"op": "chat", "limit": len(sync["chat"])})
        logged = await client.ask("memory", {"op": "turn", "mission_id": used})
    assert older["payload"]["chat"] == sync["chat"]
    lines = {line["mission_id"]: line for line in sync["chat"] if line["role"] == "assistant"}
    assert [(tool["title"], tool["is_error"]) for tool in lines[used]["tools"]] == [("echo one", False)]
    assert [(tool["title"], tool["is_error"]) for tool in lines[failed]["tools"]] == [("ls /nowhere", True)]
    assert lines[used]["session_id"] == lines[failed]["session_id"] == sync["session"]["session_id"]
    assert lines[used]["duration_ms"] > 0
    whole = logged["payload"]["turn"]["tool_calls"]
    assert [call["tool_use_id"] for call in whole] == [lines[used]["tools"][0]["tool_use_id"]]
    (tool,) = lines[stopped]["tools"]
    assert "time.sleep(30)" in tool["title"]
    assert [lines[each]["status"] for each in (used, failed, stopped)] == ["complete", "complete", "interrupted"]
    assert {line["origin"] for line in sync["chat"]} == {"person"}


@shared
async def test_status_includes_concurrently_started_mission(
    home: SharedSprite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A status describes the moment of sending: an older one would undo a `session_update` on the page."""
    state = Gateway._memory_state

    async def meanwhile(gateway: Gateway) -> MemoryState:
        await gateway._work.runtime.submit("meanwhile", "Hello meanwhile", None)
        return await state(gateway)

    home.model.script.agent({"match": "meanwhile", "hang": True})
    async with home.client() as client:
        monkeypatch.setattr(Gateway, "_memory_state", meanwhile)
        session = (await client.ask("system", {"action": "status"}))["payload"]["session"]
        monkeypatch.undo()
        assert session["running_mission_id"] == "meanwhile" or session["queued"] == 1
        client.send("interrupt", {"mission_id": "meanwhile"})
        await client.end_of("meanwhile")


@shared
async def test_flush_is_answered_after_the_learnings(home: SharedSprite, monkeypatch: pytest.MonkeyPatch) -> None:
    """The terminal said "up to date" when the answer came before the learnings."""
    drift = MemoryView.drift

    async def slow(view: MemoryView) -> dict[str, Drift]:
        await asyncio.sleep(0.3)
        return await drift(view)

    async with home.client() as client:
        await client.mission("Hello, I prefer tea.")
        monkeypatch.setattr(MemoryView, "drift", slow)
        await client.reply(client.send("system", {"action": "flush"}))
        monkeypatch.undo()
        assert any(m["type"] == "memory_update" for m in client.received)


@shared
async def test_resume_replays_missed_events_after_restart(home: SharedSprite) -> None:
    """Events older than the kept ones yield a `gap` and a `state_sync`."""
    model, workspace, sprite = home.model, home.workspace, home.sprite
    async with sprite.client() as witness:
        async with sprite.client() as client:
            await chat(client, "Hello there", "run `echo one`")
            left_at = _seqs(client)[-1]
            epoch = client.received[0]["payload"]["epoch"]
        await chat(witness, "run `echo two`")
        all_seqs = _seqs(witness)
    assert all_seqs == list(range(all_seqs[0], all_seqs[0] + len(all_seqs)))
    async with sprite.client(resume={"epoch": epoch, "last_seq": left_at}) as client:
        await chat(client, "Hello again")
        replayed = _durable(client)
    assert [m["seq"] for m in replayed] == list(range(left_at + 1, left_at + 1 + len(replayed)))
    missed = [m for m in replayed if m["seq"] <= all_seqs[-1]]
    assert missed == [m for m in _durable(witness) if m["seq"] > left_at]
    assert not [m for m in client.received if m["type"] in {"state_sync", "gap"}]
    assert isinstance(sprite, SpriteServer)
    await sprite.stop()
    written = durable_events(workspace)
    assert [m["seq"] for m in written] == list(range(1, len(written) + 1))
    async with running_sprite(workspace, model.url) as sprite:
        async with sprite.client(resume={"epoch": epoch, "last_seq": left_at}) as client:
            await client.ask("heartbeat")
            assert _durable(client) == written[left_at:]
        async with sprite.client(resume={"epoch": epoch, "last_seq": len(written)}) as client:
            await client.ask("heartbeat")
            assert _durable(client) == []
            assert not [m for m in client.received if m["type"] in {"state_sync", "gap"}]
    with contextlib.closing(sqlite3.connect(workspace / ".os/workspace.db")) as db, db:
        frames = [
            (
                seq,
                json.dumps({"type": "agent_event", "id": "x", "timestamp": 0, "payload": {}, "seq": seq}).encode()
                + b"\n",
            )
            for seq in range(len(written) + 100, len(written) + 100 + EVENTS_KEPT + 7)
        ]
        db.executemany("INSERT INTO events VALUES (?, ?)", frames)
    last = frames[-1][0]
    async with running_sprite(workspace, model.url) as sprite:
        async with sprite.client(resume={"epoch": epoch, "last_seq": len(written)}) as client:
            gap = await client.until(lambda m: m["type"] == "gap")
            assert gap["payload"]["oldest_seq"] == last - EVENTS_KEPT + 1
            await client.until(lambda m: m["type"] == "state_sync")
            await client.ask("heartbeat")
            assert _durable(client) == []
        async with sprite.client(resume={"epoch": epoch, "last_seq": last - EVENTS_KEPT}) as client:
            await client.ask("heartbeat")
            assert _seqs(client) == list(range(last - EVENTS_KEPT + 1, last + 1))
            note = {"action": "create_card", "title": "Live", "blocks": [{"type": "text", "data": {"content": "x"}}]}
            await client.ask("canvas_interaction", note)
            await client.ever(lambda m: m["type"] == "canvas_update")
            assert _seqs(client) == list(range(last - EVENTS_KEPT + 1, _seqs(client)[-1] + 1))


def _durable(client: Client) -> list[dict[str, Any]]:
    return [m for m in client.received if "seq" in m]


def _seqs(client: Client) -> list[int]:
    return [m["seq"] for m in _durable(client)]
