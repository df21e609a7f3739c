"""The model and effort of a session, pictures beside a message, and the model's thoughts."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

from tests.harness import Client, observations, running_sprite
from tests.inspection import chat
from tests.scripted_model import OfflineModel

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def asked(model: OfflineModel, text: str) -> dict[str, Any]:
    """Return the body of the agent's first request with this text of the person."""
    (request, *_) = [each for each in model.requests if each.kind == "main" and text in each.user_text]
    body: dict[str, Any] = json.loads(request.raw)
    return body


async def choose(client: Client, model: str | None, effort: str | None) -> dict[str, Any]:
    answer = await client.ask("system", {"action": "model", "model": model, "effort": effort})
    payload: dict[str, Any] = answer["payload"]
    return payload


async def test_session_keeps_chosen_model_and_effort(workspace: Path, model: OfflineModel) -> None:
    async with (
        running_sprite(workspace, model.url, SPRITE_MODEL="claude-sonnet-5") as sprite,
        sprite.client() as client,
    ):
        await chat(client, "One apple")
        status = await choose(client, "claude-opus-4-8", "low")
        assert (status["session"]["model"], status["session"]["effort"]) == ("claude-opus-4-8", "low")
        assert "claude-haiku-4-5" in status["models"]
        await chat(client, "Two pears")
    async with running_sprite(workspace, model.url) as sprite, sprite.client() as client:
        session = (await client.ask("system", {"action": "status"}))["payload"]["session"]
        assert (session["model"], session["effort"]) == (None, None)
        await client.ask("system", {"action": "resume_session", "session_id": observations(workspace)[0]["session_id"]})
        await chat(client, "Three plums")
    first, second, third = (asked(model, text) for text in ("One apple", "Two pears", "Three plums"))
    assert first["model"] == "claude-sonnet-5"
    assert "One apple" in json.dumps(second["messages"])
    assert [(body["model"], body["output_config"]["effort"]) for body in (second, third)] == [
        ("claude-opus-4-8", "low")
    ] * 2


async def test_odd_model_name_is_refused(workspace: Path, model: OfflineModel) -> None:
    async with running_sprite(workspace, model.url) as sprite, sprite.client() as client:
        for name in ("--settings", "a b", "x" * 300):
            assert (await choose(client, name, None))["message"] == f"{name[:80]!r} is not a model name."


async def test_fallback_model_answers_when_first_is_overloaded(workspace: Path, model: OfflineModel) -> None:
    model.script.agent({"error": 529, "type": "overloaded_error", "times": 3})
    async with (
        running_sprite(
            workspace, model.url, SPRITE_MODEL="claude-opus-4-8, claude-sonnet-5", CLAUDE_CODE_MAX_RETRIES="4"
        ) as sprite,
        sprite.client() as client,
    ):
        mission_id = client.send("mission", {"text": "Hello there"})
        await client.end_of(mission_id)
    assert {json.loads(each.raw)["model"] for each in model.requests if each.kind == "main"} == {
        "claude-opus-4-8",
        "claude-sonnet-5",
    }


async def test_model_sees_pictures_beside_text(workspace: Path, model: OfflineModel) -> None:
    (workspace / "documents").mkdir(parents=True, exist_ok=True)
    (workspace / "documents/a.png").write_bytes(PNG)
    data = base64.b64encode(PNG).decode()
    async with running_sprite(workspace, model.url) as sprite, sprite.client() as client:
        images = [{"path": "documents/a.png"}, {"media_type": "image/png", "data": data}]
        mission_id = client.send("mission", {"text": "What is this?", "images": images})
        assert (await client.end_of(mission_id))["event"] == "complete"
    (message,) = [each for each in asked(model, "What is this?")["messages"] if "image" in json.dumps(each["content"])]
    kinds = [block["source"]["media_type"] for block in message["content"] if block["type"] == "image"]
    assert kinds == ["image/png"] * 2
    assert observations(workspace)[0]["user_message"] == "What is this?"
    assert (workspace / "documents/picture.png").read_bytes() == PNG


async def test_unfit_pictures_are_refused(workspace: Path, model: OfflineModel) -> None:
    (workspace / "documents").mkdir(parents=True, exist_ok=True)
    (workspace / "documents/a.png").write_bytes(b"no picture")
    (workspace / "documents/b.png").write_bytes(PNG + bytes(4 << 20))
    (workspace / "documents/link.png").symlink_to("/etc/passwd")
    async with running_sprite(workspace, model.url) as sprite, sprite.client() as client:
        codes = [
            (await client.ask("mission", {"text": "Look", "images": [{"path": path}] * times}))["payload"]["code"]
            for path, times in [
                ("documents/a.png", 1),
                ("documents/b.png", 1),
                ("documents/link.png", 1),
                ("documents/../.os/run/token", 1),
                ("documents/a.png", 21),
            ]
        ]
        words = [
            (await client.ask("mission", {"text": "Look", "images": [image]}))["payload"]["message"]
            for image in [{}, {"media_type": "image/tiff", "data": "AA=="}, {"media_type": "image/png", "data": "?"}]
        ]
    assert [each.split(":")[0] for each in words] == [
        "A picture needs its `data` with a `media_type`, or the `path` of an uploaded file.",
        "'image/tiff' is not a supported type of picture",
        "The data is not base64; send the file again.",
    ]
    assert codes == ["bad_picture", "too_large", "not_found", "not_found", "too_many"]
    assert model.requests == []


async def test_thoughts_are_shown_and_never_kept(workspace: Path, model: OfflineModel) -> None:
    thought = {"type": "thinking", "thinking": "Perhaps a parrot. " * 20, "signature": "s"}
    model.script.agent({"blocks": [thought, {"type": "text", "text": "It is a bird."}]})
    async with running_sprite(workspace, model.url) as sprite, sprite.client() as client:
        await chat(client, "What flies?")
        events = [m for m in client.received if m["type"] == "agent_event"]
    thinking = [m for m in events if m["payload"]["event"] == "thinking"]
    assert "".join(m["payload"]["text"] for m in thinking) == "Perhaps a parrot. " * 20
    assert all("seq" not in m for m in thinking)
    kept = b"".join(path.read_bytes() for path in (workspace / ".os").rglob("*.db*") if path.is_file())
    assert b"Perhaps a parrot" not in kept


async def test_choice_waits_for_background_work(workspace: Path, model: OfflineModel) -> None:
    command = {"command": "until [ -e done ]; do sleep 0.05; done", "run_in_background": True}
    model.script.agent({"tool": "Bash", "input": command})
    async with running_sprite(workspace, model.url) as sprite, sprite.client() as client:
        await chat(client, "Wait for it")
        assert (await choose(client, None, "low"))["code"] == "busy"
        (workspace / "done").touch()
