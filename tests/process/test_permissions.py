"""Permission requests in `ask` mode, for every tool call that the CLI would ask about."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.fake_secrets import TOKENS, password
from tests.harness import PATIENCE, Client, observations
from tests.inspection import (
    SharedSprite,
    chat,
    durable_events,
    eventually,
    found_on_disk,
    observation_of,
    request_seen,
    shared_sprite,
    workspace_db,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="home")
async def _home(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SharedSprite]:
    async with shared_sprite(tmp_path_factory.mktemp("ask"), permissions="ask") as home:
        yield home


async def _question(client: Client) -> dict[str, Any]:
    message = await client.until(lambda m: m["type"] == "permission_request")
    payload: dict[str, Any] = message["payload"]
    return payload


async def _answer(client: Client, question: dict[str, Any], decision: str) -> dict[str, Any]:
    return await client.ask("permission", {"request_id": question["request_id"], "decision": decision})


async def _rules(client: Client) -> list[dict[str, Any]]:
    status = await client.ask("system", {"action": "status"})
    rules: list[dict[str, Any]] = status["payload"]["rules"]
    return rules


async def test_permission_decision_controls_tool_call(home: SharedSprite) -> None:
    async with home.client() as client:
        mission = client.send("mission", {"text": "run `touch allowed`"})
        question = await _question(client)
        assert (question["mission_id"], question["tool"]) == (mission, "Bash")
        assert question["input"]["command"] == "touch allowed"
        assert not (home.workspace / "allowed").exists()
        assert (await _answer(client, question, "allow"))["type"] == "ack"
        assert (await client.end_of(mission))["event"] == "complete"
        assert (home.workspace / "allowed").exists()
        # A request can be answered once.
        assert (await _answer(client, question, "allow"))["payload"]["code"] == "not_found"

        mission = client.send("mission", {"text": "run `touch denied`"})
        await _answer(client, await _question(client), "deny")
        end = await client.end_of(mission)
        assert end["event"] == "complete"
        assert "said no" in end["text"]
        assert not (home.workspace / "denied").exists()
        (call,) = observation_of(home.workspace, mission)["tool_calls"]
        assert call["is_error"] is True
        assert "said no" in call["result"]

        # Built-in tools need no permission.
        asked = len([m for m in client.received if m["type"] == "permission_request"])
        await chat(client, "make a table of apples 3, pears 5", "search memory for apples")
        assert len([m for m in client.received if m["type"] == "permission_request"]) == asked


_chance = random.Random(17)  # noqa: S311 - generated data, the same each time
KEY, PASSWORD = TOKENS["anthropic"](_chance), password(_chance).replace("$", "x").replace("'", "x")
#: Commands that a log would redact or truncate; each contains a part that the person must see.
HIDING = [
    "echo <private>; touch hidden; echo </private>",
    "echo start <private>; touch hidden",
    "cat <<'X'\n-----BEGIN PRIVATE KEY-----\nX\ntouch hidden\n: -----END PRIVATE KEY-----",
    "curl -s http://ada:kiln7Glaze@intranet/$(touch${IFS}hidden) || true",
    f"# {'a comment ' * 250}\ntouch hidden",
    "echo \u202eecho harmless\u2066; touch hidden",
    f"curl -u ada:{PASSWORD} -H 'X-Key: {KEY}' localhost:9; touch hidden",
]


async def test_permission_request_shows_unredacted_input(
    home: SharedSprite,
) -> None:
    """Stored copies are redacted."""
    for number, command in enumerate(HIDING):
        step = {"match": f"hide {number}.", "on": "prompt", "tool": "Bash"}
        home.model.script.agent({**step, "input": {"command": command}})
    async with home.client() as client:
        welcome = client.received[0]["payload"]
        epoch, before = welcome["epoch"], welcome["last_seq"]
        for number, command in enumerate(HIDING):
            mission = client.send("mission", {"text": f"Please hide {number}."})
            question = await client.until(lambda m: m["type"] == "permission_request")
            assert question["payload"]["input"] == {"command": command}
            if number in {0, len(HIDING) - 1}:
                # Later clients receive the same request, in the state and in a replay.
                async with home.sprite.client() as other:
                    sync = (await other.until(lambda m: m["type"] == "state_sync"))["payload"]
                    assert sync["permissions"] == [question["payload"]]
                resume = {"epoch": epoch, "last_seq": question["seq"] - 1}
                async with home.sprite.client(resume=resume) as other:
                    assert await _question(other) == question["payload"]
            await _answer(client, question["payload"], "deny")
            await client.end_of(mission)
        assert not (home.workspace / "hidden").exists()
        # The stored copy is marked as redacted, so a client cannot mistake it for the request.
        async with home.sprite.client(resume={"epoch": epoch, "last_seq": before}) as other:
            for _ in HIDING:
                await other.until(lambda m: m["type"] == "permission_resolved")
            kept = [m["payload"] for m in other.received if m["type"] == "permission_request"]
        assert all(each["redacted"] for each in kept)
        assert "[redacted:" in kept[3]["input"]["command"]
        assert "characters cut]" in kept[4]["input"]["command"]
    assert found_on_disk(home.workspace, [KEY[:40], KEY[-40:], PASSWORD]) == []
    assert [event for event in durable_events(home.workspace) if "x$(touch${IFS}hidden)y" in json.dumps(event)] == []


async def test_always_rule_allows_exact_command_only(home: SharedSprite) -> None:
    loop = "for f in a b; do touch $f; done"
    for words, command in (("the loop", loop), ("more loop", f"{loop}; rm -rf documents")):
        step = {"match": words, "on": "prompt", "tool": "Bash", "times": -1}
        home.model.script.agent({**step, "input": {"command": command, "description": words}})
    (home.workspace / "documents").mkdir(exist_ok=True)
    async with home.client() as client:
        mission = client.send("mission", {"text": "Run the loop"})
        question = await _question(client)
        assert question["always"] == "this command"
        await _answer(client, question, "always")
        await client.end_of(mission)
        (home.workspace / "a").unlink()
        await chat(client, "Run the loop")
        assert (home.workspace / "a").exists()
        mission = client.send("mission", {"text": "Now more loop"})
        await _answer(client, await _question(client), "deny")
        await client.end_of(mission)
        assert (home.workspace / "documents").is_dir()
        # The same text in another folder is a different command.
        mission = client.send("mission", {"text": "run `cd documents`"})
        await _answer(client, await _question(client), "allow")
        await client.end_of(mission)
        mission = client.send("mission", {"text": "Run the loop"})
        question = await _question(client)
        assert (question["folder"], question["always"]) == ("documents", "this command in documents/")
        await _answer(client, question, "deny")
        await client.end_of(mission)
        mission = client.send("mission", {"text": "run `cd ..`"})
        await _answer(client, await _question(client), "allow")
        await client.end_of(mission)
        # No rule is stored where the agent could change it.
        assert not (home.workspace / ".claude").exists()


async def test_always_rule_for_file_covers_workspace_folder(home: SharedSprite) -> None:
    """Symlinks that lead outside are not covered."""
    outside = home.workspace.parent / "outside"
    outside.mkdir()
    (home.workspace / "documents").mkdir(exist_ok=True)
    (home.workspace / "documents/away").symlink_to(outside)
    paths = {
        "a note": "documents/note.txt",
        "a second note": "documents/2026/second.txt",
        "a third note": "documents/third.txt",
        "a linked key": "documents/away/linked_keys",
        "an artifact": "artifacts/page.html",
    }
    for words, path in paths.items():
        step = {"match": f"write {words}.", "on": "prompt", "tool": "Write", "times": -1}
        home.model.script.agent({**step, "input": {"file_path": str(home.workspace / path), "content": "text"}})
    async with home.client() as client:
        mission = client.send("mission", {"text": "Please write a note."})
        question = await _question(client)
        assert question["always"] == "writing files in documents/ and its folders"
        await _answer(client, question, "always")
        await client.end_of(mission)
        await chat(client, "Please write a second note.")
        assert (home.workspace / paths["a second note"]).exists()
        for words in ("a linked key", "an artifact"):
            mission = client.send("mission", {"text": f"Please write {words}."})
            question = await _question(client)
            if words != "an artifact":
                # Without a narrow rule, "always" of an older page allows this call only.
                assert question["always"] is None
            linked = str((outside / "linked_keys").resolve())
            assert question["real_path"] == (linked if words == "a linked key" else None)
            await _answer(client, question, "deny" if words == "an artifact" else "always")
            await client.end_of(mission)
            resolved = [m["payload"] for m in client.received if m["type"] == "permission_resolved"][-1]
            assert resolved["decision"] == ("deny" if words == "an artifact" else "allow")
        # Active rules are listed and can be revoked.
        rules = await _rules(client)
        assert [rule["words"] for rule in rules] == ["this command", "writing files in documents/ and its folders"]
        revoke = {"action": "revoke", "rule_id": rules[1]["rule_id"]}
        assert (await client.ask("system", revoke))["payload"]["rules"] == rules[:1]
        assert (await client.ask("system", revoke))["payload"]["code"] == "not_found"
        mission = client.send("mission", {"text": "Please write a third note."})
        await _answer(client, await _question(client), "deny")
        await client.end_of(mission)


async def test_permission_request_without_client_is_denied(home: SharedSprite) -> None:
    """A client that reconnects in time can still answer."""
    home.model.script.agent({"match": "unwatched", "delay": 0.3})
    async with home.sprite.client() as client:
        mission = client.send("mission", {"text": "run `touch unwatched`"})
        await client.reply(mission)
    await eventually(lambda: _kept(home.workspace, mission), "the mission did not end")
    (call,) = observation_of(home.workspace, mission)["tool_calls"]
    assert "No client is connected" in call["result"]
    assert not (home.workspace / "unwatched").exists()

    async with home.sprite.client() as client:
        epoch = client.received[0]["payload"]["epoch"]
        mission = client.send("mission", {"text": "run `touch later`"})
        question = await client.until(lambda m: m["type"] == "permission_request")
    async with home.sprite.client(resume={"epoch": epoch, "last_seq": question["seq"] - 1}) as client:
        assert await _question(client) == question["payload"]
        await _answer(client, question["payload"], "allow")
        assert (await client.end_of(mission))["event"] == "complete"
        assert (home.workspace / "later").exists()


async def test_interrupt_withdraws_permission_request(home: SharedSprite) -> None:
    async with home.client() as client:
        mission = client.send("mission", {"text": "run `touch withdrawn`"})
        question = await _question(client)
        await client.ask("interrupt")
        async with asyncio.timeout(PATIENCE):
            assert (await client.end_of(mission))["event"] == "interrupted"
        assert (await _answer(client, question, "allow"))["payload"]["code"] == "not_found"
        assert observation_of(home.workspace, mission)["outcome"] == "interrupted"
        await chat(client, "Hello again")
        assert not (home.workspace / "withdrawn").exists()


def _kept(workspace: Path, mission: str) -> bool:
    try:
        observation_of(workspace, mission)
    except ValueError:
        return False
    return True


async def test_background_permission_request_outlives_turn(
    home: SharedSprite,
) -> None:
    """Later turns and interrupts do not withdraw it either."""
    home.model.script.agent({"match": "think for ever", "hang": True})
    async with home.client() as client:
        mission = client.send("mission", {"text": "use a subagent to run `touch late`"})
        ended, question = None, None
        while ended is None or question is None:
            message = await client.next()
            assert message is not None
            if message["type"] == "permission_request":
                question = message["payload"]
            elif message["type"] == "agent_event" and message["payload"]["event"] == "complete":
                ended = message["payload"]["mission_id"]
        assert (ended, question["mission_id"], question["background"]) == (mission, mission, True)
        await chat(client, "Hello meanwhile")
        stopped = client.send("mission", {"text": "think for ever"})
        await request_seen(home.model, lambda r: "think for ever" in r.user_text)
        await client.ask("interrupt")
        assert (await client.end_of(stopped))["event"] == "interrupted"
        assert not any(m["type"] == "permission_resolved" for m in client.received)
        async with home.sprite.client() as other:
            sync = (await other.until(lambda m: m["type"] == "state_sync"))["payload"]
            assert sync["permissions"] == [question]
            assert (await _answer(other, question, "allow"))["type"] == "ack"
        resolved = await client.until(lambda m: m["type"] == "permission_resolved")
        assert resolved["payload"] == {"request_id": question["request_id"], "decision": "allow"}
        own = await client.until(lambda m: m["type"] == "agent_event" and m["payload"].get("origin") == "agent")
        assert (await client.end_of(own["payload"]["mission_id"]))["event"] == "complete"
        assert (home.workspace / "late").exists()


async def test_stopped_background_agent_withdraws_permission_request(home: SharedSprite) -> None:
    async with home.client() as client:
        client.send("mission", {"text": "use a subagent to run `touch never`"})
        question = await _question(client)
        await eventually(lambda: not _open(home.workspace), "the mission did not end")
        kinds = [stopped["kind"] for stopped in (await client.ask("interrupt"))["payload"]["stopped"]]
        assert kinds == ["agent"]
        if not any(m["type"] == "permission_resolved" for m in client.received):
            await client.until(lambda m: m["type"] == "permission_resolved")
        assert (await _answer(client, question, "allow"))["payload"]["code"] == "not_found"
        assert not (home.workspace / "never").exists()
        # The stopped agent does not report; its calls are recorded when the session ends.
        assert await _rules(client)
        await client.ask("system", {"action": "new_session"})
        # "Always" rules end with the conversation.
        assert await _rules(client) == []
        assert "touch never" in observations(home.workspace)[-1]["tool_calls_json"]


def _open(workspace: Path) -> list[dict[str, Any]]:
    return workspace_db(workspace, "SELECT id FROM missions WHERE status IN ('queued', 'running')")
