"""Secrets and private text reach the agent and never the disk: a byte search after every kind of turn.

During a session, `.os/run/claude` is left out: the CLI keeps its own unredacted session there.
"""

from __future__ import annotations

import json
import random
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from sprite.privacy.secret_formats import NOT_KEPT
from sprite.protocol.pasted import own_text, read_spans
from tests.fake_secrets import TOKENS, password
from tests.harness import Client
from tests.inspection import (
    SharedSprite,
    chat,
    durable_events,
    eventually,
    found_on_disk,
    journal,
    observation_of,
    prompts,
    shared_sprite,
    workspace_db,
)
from tests.looks import files_below
from tests.scripted_model import Script

PRIVATE_WORDS = "I will leave the company in May"
OWN_KEY = "plain-words-and-no-shape"
SAID = f"<private>{PRIVATE_WORDS}</private>"


class Secrets:
    """Secrets generated for one test."""

    def __init__(self, seed: int) -> None:
        rng = random.Random(seed)  # noqa: S311 - generated data, the same each time
        self.key = TOKENS["anthropic"](rng)
        self.token = TOKENS["github-classic"](rng)
        self.password = password(rng).replace("$", "x")
        #: Parts that must not be found.
        self.forbidden = (self.key[:40], self.key[-40:], self.token[4:], self.password, PRIVATE_WORDS)


@pytest.fixture
def secrets(request: pytest.FixtureRequest) -> Secrets:
    return Secrets(zlib.crc32(request.node.name.encode()))


#: Tests that share one sprite.
shared = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="home")
async def home_(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SharedSprite]:
    async with shared_sprite(tmp_path_factory.mktemp("privacy"), ANTHROPIC_API_KEY=OWN_KEY) as home:
        yield home
    assert found_on_disk(home.workspace, told, session=False) == [], "session files remain after the session"


#: Text sent to the shared sprite that must not be found.
told: list[str] = []


@asynccontextmanager
async def conversation(home: SharedSprite, secrets: Secrets | None = None) -> AsyncIterator[Client]:
    """Connect a client; reset the model's script afterwards."""
    told.extend(secrets.forbidden if secrets else ())
    async with home.client() as client:
        yield client
    home.model.script = Script()


def received(messages: list[dict[str, Any]], words: str) -> list[dict[str, Any]]:
    """Return durable messages that contain these words; streamed text is not stored."""
    return [m for m in messages if "seq" in m and words in str(m)]


def all_in_session(workspace: Path, forbidden: Sequence[str]) -> bool:
    """Return whether the CLI's own session contains all words; it writes shortly after its output."""
    sessions = [
        content for file, content in files_below(workspace / ".os/run/claude").items() if file.suffix == ".jsonl"
    ]
    return all(any(words.encode() in session for session in sessions) for words in forbidden)


@shared
async def test_mission_secrets_reach_agent_only(home: SharedSprite, secrets: Secrets) -> None:
    text = f"My key is {secrets.key} and\nDB_PASSWORD={secrets.password}\n{SAID} Say it all back."
    # The agent repeats the words without the context that marks them as secret.
    home.model.script.agent({"text": f"You said {secrets.key}, {secrets.password} and: {PRIVATE_WORDS}."})
    async with conversation(home, secrets) as client:
        mission = client.send("mission", {"text": text})
        end = await client.end_of(mission)
        assert end["event"] == "complete"
        assert text in prompts(home.model, secrets.key)[-1].user_text
        kept = observation_of(home.workspace, mission)
        assert kept["user_message"] == (
            "My key is [redacted:anthropic-api-key] and\nDB_PASSWORD=[redacted:password-assignment]\n"
            "[private] Say it all back."
        )
        assert kept["agent_response"] == (
            "You said [redacted:anthropic-api-key], [redacted:password-assignment] and: [private]."
        )
        assert end["text"] == kept["agent_response"]
        lines = workspace_db(
            home.workspace, "SELECT text FROM chat_messages WHERE mission_id = ? ORDER BY id", (mission,)
        )
        assert [line["text"] for line in lines] == [kept["user_message"], kept["agent_response"]]
        assert found_on_disk(home.workspace, secrets.forbidden) == []
        for words in secrets.forbidden:
            assert received(client.received, words) == []
        # Control for the search: the CLI's own session contains every word while it lasts.
        await eventually(
            lambda: all_in_session(home.workspace, secrets.forbidden[:2]), "the CLI session lacks a secret"
        )


@shared
async def test_tool_inputs_and_results_are_redacted(home: SharedSprite, secrets: Secrets) -> None:
    (home.workspace / "documents").mkdir(exist_ok=True)
    (home.workspace / "documents/.env").write_text(f"GITHUB_TOKEN={secrets.token}\nDB_PASSWORD={secrets.password}\n")
    script = {"command": f"cat documents/.env; echo key={secrets.key} >&2; exit 3"}
    card = {
        "title": f"Key {secrets.token}",
        "card_type": "notes",
        "blocks": [{"type": "key-value", "data": {"pairs": [{"key": "password", "value": secrets.password}]}}],
    }
    home.model.script.agent(
        {
            "match": "look around",
            "on": "prompt",
            "blocks": [
                {"type": "tool_use", "name": "Bash", "input": script},
                {"type": "tool_use", "name": "Read", "input": {"file_path": str(home.workspace / "documents/.env")}},
                {"type": "tool_use", "name": "mcp__sprite__create_card", "input": card},
            ],
        }
    )
    async with conversation(home, secrets) as client:
        mission = client.send("mission", {"text": "look around"})
        assert (await client.end_of(mission))["event"] == "complete"
        assert secrets.token in str(home.model.requests[-1].body), "the agent did not see the file"
        calls = observation_of(home.workspace, mission)["tool_calls"]
        assert [call["name"] for call in calls] == ["Bash", "Read", "mcp__sprite__create_card"]
        assert [calls[0]["result"], calls[1]["result"]] == [NOT_KEPT, NOT_KEPT]
        assert "[redacted:anthropic-api-key]" in calls[0]["input"]["command"]
        assert "[redacted:github-token]" in str(durable_events(home.workspace))
        assert found_on_disk(home.workspace, secrets.forbidden) == []
        for words in secrets.forbidden:
            assert received(client.received, words) == []


@shared
async def test_model_error_with_secret_is_redacted(home: SharedSprite, secrets: Secrets) -> None:
    words = f"invalid key {secrets.key}, password={secrets.password}"
    home.model.script.agent({"match": "fail", "error": 418, "type": "teapot_error", "message": words, "times": -1})
    async with conversation(home, secrets) as client:
        end = await client.mission("fail")
        assert end["event"] == "error"
        assert "[redacted:anthropic-api-key]" in end["message"]
        assert "[redacted:anthropic-api-key]" in end["details"]
        refused = await client.ask("canvas_interaction", {"action": "create_stack", "name": f"Keys {secrets.token}"})
        assert refused["payload"]["status"] == "done"
        for message in client.received:
            assert not any(word in str(message) for word in secrets.forbidden)


@shared
async def test_redacted_missions_are_recorded_once_each(home: SharedSprite, secrets: Secrets) -> None:
    async with conversation(home, secrets) as client:
        missions = await chat(client, *[f"Hello, {secrets.token} {SAID}"] * 2)
        kept = [observation_of(home.workspace, mission) for mission in missions]
        assert [(o["trigger"], o["outcome"]) for o in kept] == [("user", "complete")] * 2
        assert all(o["user_message"] == "Hello, [redacted:github-token] [private]" for o in kept)
        assert journal(home.workspace) == []


@shared
async def test_off_the_record_mission_stays_out_of_memory(
    home: SharedSprite,
) -> None:
    """The log has the mission; curation, search and boot do not."""
    home.model.requests.clear()
    said = "Off the record: my name is Halvorsen and I prefer rum."
    async with conversation(home) as client:
        hidden, _ = await chat(client, said, "I prefer tea.")
        assert "Halvorsen" in str(prompts(home.model, "I prefer tea.")[0].body["messages"]), (
            "the session lost the message"
        )
        await client.ask("system", {"action": "flush"})
        await client.ask("system", {"action": "new_session"})
        await chat(client, "Hello again")
        found = await client.ask("memory", {"op": "search", "query": "Halvorsen rum"})
        assert found["payload"]["hits"] == []
        assert "Halvorsen" not in str(prompts(home.model, "Hello again")[0].body)
    assert observation_of(home.workspace, hidden)["user_message"] == said
    curated = [str(request.body) for request in home.model.requests if request.kind == "curator"]
    assert any("I prefer tea." in body for body in curated)
    assert not any("Halvorsen" in body for body in curated)
    assert "tea" in (home.workspace / ".os/memory/user.md").read_text()
    for file in (home.workspace / ".os/memory").glob("*.md"):
        assert "rum" not in file.read_text().split()


@shared
async def test_pasted_spans_follow_redacted_message(home: SharedSprite, secrets: Secrets) -> None:
    pasted = f"\U0001f600 Their key is {secrets.key}."
    text = f"{SAID} They write: {pasted} Use it."
    start = text.index(pasted)
    spans = [[start, start + len(pasted)]]
    async with conversation(home, secrets) as client:
        for wrong in ([[start, start]], [[-1, 2]], [[5, 9], [0, 2]], [[0, len(text) + 1]], [[1]], "all"):
            refused = await client.ask("mission", {"text": text, "pasted": wrong})
            assert refused["type"] == "error", refused
            assert refused["payload"]["code"] in {"bad_request", "bad_payload"}
            assert "pasted" in refused["payload"]["message"]
        mission = client.send("mission", {"text": text, "pasted": spans})
        said = await client.until(lambda message: message["type"] == "chat_said")
        assert (await client.end_of(mission))["event"] == "complete"
    said = said["payload"]
    (row,) = workspace_db(home.workspace, "SELECT pasted_json FROM missions WHERE id = ?", (mission,))
    kept = observation_of(home.workspace, mission)
    assert json.loads(kept["pasted_json"]) == json.loads(row["pasted_json"]) == said["pasted"]
    assert kept["user_message"] == said["text"]
    own = own_text(kept["user_message"], read_spans(kept["pasted_json"]))
    assert own == "[private] They write: \n Use it."


@shared
async def test_own_api_key_is_redacted_everywhere(home: SharedSprite) -> None:
    """The key has no known shape; tools print it, the agent repeats it and a person writes it."""
    told.append(OWN_KEY)
    script = home.model.script
    async with conversation(home) as client:
        script.agent({"tool": "Bash", "input": {"command": "echo it is $ANTHROPIC_API_KEY"}})
        script.agent({"text": f"I run on {OWN_KEY}.", "on": "result"})
        mission = client.send("mission", {"text": f"Print {OWN_KEY}"})
        assert (await client.end_of(mission))["event"] == "complete"
        script.agent({"error": 400, "type": "invalid_request_error", "message": f"{OWN_KEY} is bad", "times": -1})
        await client.mission("Try again")
        await client.ask("memory", {"op": "edit", "name": "user.md", "content": f"# User\n\nUses {OWN_KEY}.\n"})
        added = await client.ask("memory", {"op": "add_action", "content": f"Rotate {OWN_KEY}"})
        assert "[redacted:own-secret]" in str(added), added
        await client.ask("system", {"action": "new_session"})
        await client.ask("system", {"action": "flush"})
    (call,) = observation_of(home.workspace, mission)["tool_calls"]
    assert call["result"] == NOT_KEPT
    assert "[redacted:own-secret]" in (home.workspace / ".os/memory/user.md").read_text()
    assert found_on_disk(home.workspace, [OWN_KEY], session=False) == []
