"""State of an additional page: everything open, and every later change."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.harness import Client, Message
from tests.inspection import SharedSprite, chat, observation_of, prompts, shared_sprite

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="home")
async def _home(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SharedSprite]:
    async with shared_sprite(tmp_path_factory.mktemp("pages"), permissions="ask") as home:
        yield home


async def sync_of(client: Client) -> Message:
    message = await client.until(lambda m: m["type"] == "state_sync")
    payload: Message = message["payload"]
    return payload


async def payload_of(client: Client, kind: str) -> Message:
    message = await client.until(lambda m: m["type"] == kind)
    payload: Message = message["payload"]
    return payload


async def rows_of(client: Client, op: str, **payload: object) -> list[Message]:
    answer = await client.ask("memory", {"op": op, **payload})
    rows: list[Message] = answer["payload"][op]
    return rows


async def test_late_page_receives_question_events_and_queue(
    home: SharedSprite,
) -> None:
    async with home.client() as first:
        mission = first.send("mission", {"text": "run `touch it`"})
        question = await payload_of(first, "permission_request")
        waiting = first.send("mission", {"text": "Hello after that"})
        await first.reply(waiting)
        async with home.sprite.client() as second:
            sync = await sync_of(second)
            assert sync["permissions"] == [question]
            assert sync["queued"] == [waiting]
            assert sync["model"]
            running = sync["running"]
            assert running["mission_id"] == mission
            assert next(event["event"] for event in running["events"]) == "started"
            assert "tool_use" in [event["event"] for event in running["events"]]
            # Either page may answer; both receive the decision.
            await second.ask("permission", {"request_id": question["request_id"], "decision": "allow"})
            for page in (first, second):
                resolved = [m["payload"] for m in page.received if m["type"] == "permission_resolved"]
                resolved = resolved or [await payload_of(page, "permission_resolved")]
                assert resolved == [{"request_id": question["request_id"], "decision": "allow"}]
            assert (await second.end_of(waiting))["event"] == "complete"
        async with home.sprite.client() as third:
            sync = await sync_of(third)
            assert (sync["permissions"], sync["queued"], sync["running"]) == ([], [], None)


async def test_message_appears_on_other_page_before_start(home: SharedSprite) -> None:
    async with home.client() as first, home.sprite.client() as second:
        mission = first.send("mission", {"text": "Hello, both of you"})
        said = await payload_of(second, "chat_said")
        assert (said["mission_id"], said["role"], said["text"]) == (mission, "user", "Hello, both of you")
        assert not [e for e in second.events(mission) if e["event"] == "started"]
        await second.end_of(mission)
        await first.end_of(mission)


async def test_queued_message_can_be_withdrawn(home: SharedSprite) -> None:
    async with home.client() as client:
        client.send("mission", {"text": "run `touch first`"})
        question = await payload_of(client, "permission_request")
        waiting = client.send("mission", {"text": "Never mind this one"})
        await client.reply(waiting)
        assert (await client.ask("interrupt", {"mission_id": waiting}))["payload"]["mission_id"] == waiting
        assert (await client.ask("interrupt", {"mission_id": waiting}))["payload"]["code"] == "not_running"
        await client.ask("permission", {"request_id": question["request_id"], "decision": "allow"})
        assert (await client.end_of(waiting))["event"] == "interrupted"
    assert prompts(home.model, "Never mind this one") == []
    assert observation_of(home.workspace, waiting)["outcome"] == "interrupted"


async def test_stack_changes_reach_every_page(home: SharedSprite) -> None:
    """Changes by the agent and by a person are announced."""
    async with home.client() as first, home.sprite.client() as second:
        mission = first.send("mission", {"text": "make a table card of apples 3, pears 5"})
        made = await payload_of(second, "stack_update")
        card = await payload_of(second, "canvas_update")
        assert (made["name"], made["archived"]) == ("Canvas", False)
        assert card["stack_id"] == made["stack_id"]
        await first.end_of(mission)
        for action, name, archived in (
            ("rename_stack", "Fruit", False),
            ("archive_stack", "Fruit", True),
            ("restore_stack", "Fruit", False),
        ):
            await first.ask("canvas_interaction", {"action": action, "stack_id": made["stack_id"], "name": "Fruit"})
            changed = await payload_of(second, "stack_update")
            assert changed == {"stack_id": made["stack_id"], "name": name, "archived": archived}


async def test_edit_of_stale_version_conflicts(home: SharedSprite) -> None:
    async with home.client() as client:
        opened = (await client.ask("memory", {"op": "file", "name": "user.md"}))["payload"]["version"]
        edit = {"op": "edit", "name": "user.md", "version": opened}
        assert (await client.ask("memory", {**edit, "content": "# One\n"}))["payload"]["version"] == opened + 1
        refused = (await client.ask("memory", {**edit, "content": "# Two\n"}))["payload"]
        assert (refused["code"], "has changed" in refused["message"]) == ("conflict", True)
        assert (await client.ask("memory", {"op": "file", "name": "user.md"}))["payload"]["content"] == "# One\n"


async def test_external_edit_reaches_pages_despite_conflict(tmp_path: Path) -> None:
    """Without a sandbox, a change during a session could be the agent's."""
    async with shared_sprite(tmp_path) as home, home.client() as client, home.sprite.client() as other:
        version = (await client.ask("memory", {"op": "file", "name": "user.md"}))["payload"]["version"]
        (home.workspace / ".os/memory/user.md").write_text("# By hand\n")
        edit = {"op": "edit", "name": "user.md", "version": version, "content": "# Three\n"}
        assert (await client.ask("memory", edit))["payload"]["code"] == "conflict"
        assert (await payload_of(other, "memory_update"))["files"] == ["user.md"]


async def test_timeline_lists_turns_and_curations_newest_first(home: SharedSprite) -> None:
    """Both lists are paged."""
    async with home.client() as client:
        await chat(client, "I prefer short answers")
        await client.ask("memory", {"op": "edit", "name": "context.md", "content": "# Context\n"})
        await client.ask("system", {"action": "flush"})
        turns = await rows_of(client, "observations", limit=2)
        assert turns[0]["user_message"] == "I prefer short answers"
        assert turns[0]["curated"] is True
        older = await rows_of(client, "observations", before=turns[-1]["id"])
        assert [row["id"] for row in turns + older] == list(range(turns[0]["id"], 0, -1))
        batch, edit, *_ = await rows_of(client, "curations")
        assert (batch["kind"], batch["last_turn"], batch["active"]) == ("batch", turns[0]["id"], True)
        assert batch["learnings"] >= 1
        assert batch["model"]
        assert (edit["kind"], edit["detail"]["name"]) == ("edit", "context.md")
        assert [file["name"] for file in edit["files"]] == ["context.md"]
        assert await rows_of(client, "curations", before=1) == []
        learned = await rows_of(client, "learnings", newest=True, limit=1)
        assert (learned[0]["curation_id"], learned[0]["origin"]) == (batch["id"], "user")
        assert await rows_of(client, "learnings", before=1) == []


async def test_chat_pages_join_without_gap(home: SharedSprite) -> None:
    async with home.client() as first:
        await chat(first, "Hello", "Hello again")
    async with home.client() as client:
        whole = (await sync_of(client))["chat"]
        newest = await rows_of(client, "chat", limit=2)
        older = await rows_of(client, "chat", before=newest[0]["id"])
        assert older + newest == whole
        assert await rows_of(client, "chat", before=whole[0]["id"]) == []


async def test_health_reports_spend_and_pending_turns(home: SharedSprite) -> None:
    async with home.client() as client:
        await chat(client, "I prefer long walks")
        await client.ask("system", {"action": "flush"})
        answer = (await client.ask("memory", {"op": "health"}))["payload"]["health"]
    assert (answer["waiting"], answer["last_error"], answer["daily_cap_usd"]) == (0, None, None)
    assert answer["curations"] >= 1
    assert answer["turns"] >= answer["curations"]


async def test_forget_preview_changes_nothing(home: SharedSprite) -> None:
    async with home.client() as client:
        await chat(client, "I prefer short meetings")
        target = {"op": "forget", "text": "short meetings", "preview": True}
        preview = (await client.ask("memory", target))["payload"]
        assert preview["done"] is False
        assert preview["forgotten"]["turns"]
        turn = (await client.ask("memory", {"op": "turn", "id": preview["forgotten"]["turns"][0]}))["payload"]["turn"]
        assert "short meetings" in turn["user_message"]
