"""Rules of the person, held by the hook of the real SDK and CLI against a model that disobeys."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.command_line import command
from tests.harness import Client, running_sprite
from tests.inspection import SharedSprite, observation_of, shared_sprite

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="home")
async def _home(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SharedSprite]:
    async with shared_sprite(tmp_path_factory.mktemp("rules"), permissions="bypass") as home:
        yield home


async def accepted(client: Client, text: str) -> int:
    """Return the number of a new rule that the person accepts."""
    assert (await client.ask("rule", {"action": "propose", "text": text}))["type"] == "ack"
    offered = await client.ever(
        lambda m: m["type"] == "rule_offered" and text.startswith(m["payload"]["rule"]["words"])
    )
    number: int = offered["payload"]["rule"]["id"]
    assert offered["payload"]["rule"]["status"] == "offered"
    assert (await client.ask("rule", {"action": "accept", "id": number}))["type"] == "ack"
    return number


def disobey(home: SharedSprite, *commands: str) -> None:
    """Let the model call Bash with each command in turn, whatever it is told."""
    for each in commands:
        home.model.script.agent({"match": "disobey", "tool": "Bash", "input": {"command": each}})
    home.model.script.agent({"match": "disobey", "text": "Done."})


async def test_rule_stops_disobedient_model(home: SharedSprite) -> None:
    commands = [f"touch made{number}" for number in range(20)]
    async with home.client() as client:
        number = await accepted(client, 'stop when command "touch ... made*": Make no such files.')
        disobey(home, *commands, "touch other")
        mission = client.send("mission", {"text": "disobey"})
        assert (await client.end_of(mission))["event"] == "complete"
        assert [path.name for path in home.workspace.glob("made*")] == []
        assert (home.workspace / "other").exists()
        applied = [m["payload"] for m in client.received if m["type"] == "rule_applied"]
        assert [each["did"] for each in applied] == ["stopped"] * 20
        assert all(each["mission_id"] == mission for each in applied)
        assert applied[0]["said"].startswith("Stopped by your rule of ")
        calls = observation_of(home.workspace, mission)["tool_calls"]
        assert [call["is_error"] for call in calls] == [True] * 20 + [False]
        assert "Stopped by the person's rule of " in calls[0]["result"]
        assert "Make no such files." in calls[0]["result"]
        await client.ask("rule", {"action": "retire", "id": number})


async def test_override_lets_stopped_call_run_once(home: SharedSprite) -> None:
    async with home.client() as client:
        number = await accepted(client, 'stop when command "mkdir": No folders.')
        assert (await client.ask("rule", {"action": "override", "id": number}))["payload"]["code"] == "not_found"
        for _ in range(2):
            disobey(home, "mkdir folder")
            await client.mission("disobey")
            assert not (home.workspace / "folder").exists()
            assert (await client.ask("rule", {"action": "override", "id": number}))["type"] == "ack"
            disobey(home, "mkdir folder")
            await client.mission("disobey")
            said = [m["payload"]["said"] for m in client.received if m["type"] == "rule_applied"]
            assert said[-1].startswith("You let it run once in spite of your rule of ")
            (home.workspace / "folder").rmdir()
        listed = (await client.ask("memory", {"op": "rules"}))["payload"]["rules"]
        (doubted,) = [rule for rule in listed if rule["id"] == number]
        assert (doubted["status"], doubted["doubt"]) == ("active", "You let it pass 2 times in a row.")
        # A pass is for the call that was stopped, and for once.
        disobey(home, "mkdir folder")
        await client.mission("disobey")
        await client.ask("rule", {"action": "override", "id": number})
        disobey(home, "mkdir another", "mkdir folder", "mkdir folder && touch folder/used")
        await client.mission("disobey")
        assert not (home.workspace / "another").exists()
        assert (home.workspace / "folder").exists()
        assert not (home.workspace / "folder/used").exists()
        await client.ask("rule", {"action": "retire", "id": number})


async def test_rule_that_asks_waits_for_person(home: SharedSprite) -> None:
    async with home.client() as client:
        number = await accepted(client, 'ask when tool "Write" and path "*.lock": Ask before writing a lock.')
        for decision, exists in (("deny", False), ("allow", True)):
            path = home.workspace / "poetry.lock"
            step: dict[str, Any] = {"match": "write it", "on": "prompt", "tool": "Write"}
            home.model.script.agent({**step, "input": {"file_path": str(path), "content": "x"}})
            mission = client.send("mission", {"text": "Please write it."})
            question = (await client.until(lambda m: m["type"] == "permission_request"))["payload"]
            assert question["rule"].startswith("Asked because of your rule of ")
            assert question["always"] is None
            await client.ask("permission", {"request_id": question["request_id"], "decision": decision})
            await client.end_of(mission)
            assert path.exists() is exists
        await client.ask("rule", {"action": "retire", "id": number})


async def test_commit_to_main_is_stopped_in_repository(home: SharedSprite) -> None:
    async with home.client() as client:
        await accepted(client, 'stop when command "git commit" and branch "main": Commit on a branch of your own.')
        git = "git -c user.name=a -c user.email=a@example.org"
        disobey(
            home,
            "git init -q -b main repo",
            f"cd repo && touch a && git add a && {git} commit -qm one",
            f"cd {home.workspace}/repo && touch a && git add a && git switch -qc feature && {git} commit -qm one",
            f"{git} -C {home.workspace}/repo log --oneline --all",
        )
        mission = client.send("mission", {"text": "disobey"})
        await client.end_of(mission)
        calls = observation_of(home.workspace, mission)["tool_calls"]
        assert [call["is_error"] for call in calls] == [False, True, False, False]


async def test_wish_for_rule_is_offered_after_curation(home: SharedSprite, tmp_path: Path) -> None:
    wish = "Make it a rule that you never shred anything"
    async with running_sprite(tmp_path, home.model.url, permissions="bypass") as sprite, sprite.client() as client:
        own = SharedSprite(home.model, tmp_path, sprite)
        disobey(own, "shred x")
        await client.mission("disobey")
        await client.mission(wish)
        rule = 'stop when command "shred": Shred nothing.'
        answer = f'PREFERENCE [t2] Sprite shreds nothing. | "{wish}"\nRULE [t2] {rule} | "{wish}"'
        home.model.script.curator({"raw_text": answer})
        await client.ask("system", {"action": "flush"})
        offered = (await client.ever(lambda m: m["type"] == "rule_offered"))["payload"]["rule"]
        assert (offered["quote"], offered["stops"]) == (wish, 1)
        disobey(own, "shred x || touch ran")
        await client.mission("disobey")
        assert (tmp_path / "ran").exists()
        await client.ask("rule", {"action": "accept", "id": offered["id"]})
        disobey(own, "shred x || touch again")
        await client.mission("disobey")
        assert not (tmp_path / "again").exists()


async def test_forged_words_about_rules_are_refused(home: SharedSprite) -> None:
    async with home.client() as client:
        for payload, code in (
            ({"action": "accept", "id": 999}, "not_found"),
            ({"action": "propose", "text": "stop everything"}, "bad_request"),
            ({"action": "propose", "text": 'stop when time "Mon"'}, "bad_request"),
            ({"action": "accept"}, "not_found"),
        ):
            assert (await client.ask("rule", payload))["payload"]["code"] == code


async def test_rule_holds_after_restart(home: SharedSprite, tmp_path: Path) -> None:
    for is_first in (True, False):
        async with running_sprite(tmp_path, home.model.url, permissions="bypass") as sprite, sprite.client() as client:
            if is_first:
                await accepted(client, 'stop when command "rmdir": Keep folders.')
                (tmp_path / "kept").mkdir()
            own = SharedSprite(home.model, tmp_path, sprite)
            disobey(own, "rmdir kept")
            await client.mission("disobey")
            assert (tmp_path / "kept").exists()


async def test_commands_list_and_test_rules(home: SharedSprite, tmp_path: Path) -> None:
    async with running_sprite(tmp_path, home.model.url, permissions="bypass") as sprite, sprite.client() as client:
        assert (await command(tmp_path, "rules", "list"))[1].startswith("There are no rules.")
        own = SharedSprite(home.model, tmp_path, sprite)
        disobey(own, "touch a")
        await client.mission("disobey")
        number = await accepted(client, 'ask when command "touch": Ask before making files.')
        code, told, _ = await command(tmp_path, "rules", "list")
        assert (code, told.split()[:2]) == (0, [str(number), "active"])
        assert "Ask before making files. (never used)" in told
        (row,) = json.loads((await command(tmp_path, "rules", "list", "--json"))[1])
        assert (row["checked"], row["stops"]) == (1, 1)
        assert (await command(tmp_path, "rules", "test"))[:2] == (
            0,
            f"ask   rule {number} (active): turn 1, Bash: touch a\n",
        )
        met = await command(tmp_path, "rules", "test", "env touch 'b c'", "--json")
        assert json.loads(met[1]) == [{"rule": number, "call": "env touch 'b c'", "verdict": "ask"}]
        assert (await command(tmp_path, "rules", "test", "ls"))[1] == "No rule is about this call.\n"
        await client.ask("rule", {"action": "retire", "id": number})
        assert "retired" in (await command(tmp_path, "rules", "list", "--all"))[1]
