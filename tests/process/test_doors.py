"""The bridge's doors for other programs, at a real bridge with a real sprite: OpenAI's own client, and plain HTTP."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import openai
import pytest

from bridge.offline.model import OfflineModel
from tests.bridge_harness import BridgeProcess, running_bridge
from tests.harness import PATIENCE, observations
from tests.inspection import eventually, request_seen

DOORS = [
    ("POST", "/v1/observations", "observe"),
    ("GET", "/v1/memory/boot?project=../..", "memory:read"),
    ("POST", "/v1/chat/completions", "ask"),
    ("GET", "/v1/models/none", "ask"),
]
#: Long enough for half of it to be in mid-stream.
THINKING = "I think about it. " * 50


@asynccontextmanager
async def scripted_bridge(folder: Path, model: OfflineModel, *arguments: str) -> AsyncIterator[BridgeProcess]:
    """A bridge whose sprites talk to the test's model."""
    async with running_bridge(
        folder / "data", *arguments, ANTHROPIC_API_KEY="offline", ANTHROPIC_BASE_URL=model.url
    ) as bridge:
        yield bridge


async def token(bridge: BridgeProcess, *scopes: str, name: str | None = None) -> str:
    flags = [flag for scope in scopes for flag in ("--scope", scope)] if scopes else ["--full"]
    status, out, err = await bridge.run("users", "token", "local", *flags, *(["--name", name] if name else []))
    assert status == 0, err
    return out.splitlines()[-1]


@asynccontextmanager
async def client(bridge: BridgeProcess, *scopes: str, name: str | None = None) -> AsyncIterator[openai.AsyncOpenAI]:
    """OpenAI's own client, with a token of these scopes."""
    secret = await token(bridge, *(scopes or ("ask",)), name=name)
    async with openai.AsyncOpenAI(api_key=secret, base_url=f"{bridge.url}/v1", timeout=PATIENCE) as program:
        yield program


def user(content: Any) -> Any:
    return [{"role": "user", "content": content}]


async def streamed(program: openai.AsyncOpenAI, text: str, **options: Any) -> Any:
    return await program.chat.completions.create(model="sprite", messages=user(text), stream=True, **options)


async def said(stream: Any) -> str:
    return "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])


async def post(
    bridge: BridgeProcess, secret: str, body: Any, path: str = "/v1/observations"
) -> tuple[int, dict[str, Any]]:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    async with (
        bridge.http() as session,
        session.post(path, data=data, headers={"Authorization": f"Bearer {secret}"}) as response,
    ):
        return response.status, await response.json()


def batch(*turns: dict[str, Any], project: str | None = "/home/ada/code") -> dict[str, Any]:
    return {"source": "my-program", "project": project, "turns": list(turns)}


def turn(number: int, **fields: Any) -> dict[str, Any]:
    return {
        "external_id": f"t{number}",
        "session": "s1",
        "at": time.time(),
        "user": f"Message {number}",
        "tools": [{"name": "Bash", "input": {"command": "ls"}, "result": "a.txt"}],
        "reply": "Done.",
        "outcome": "complete",
    } | fields


# --- who may come in ---


async def test_each_door_opens_for_its_scope_alone_and_for_nothing_but_a_token(tmp_path: Path) -> None:
    async with running_bridge(tmp_path / "data") as bridge, bridge.http() as session:
        scopes = ("memory:read", "observe", "ask", "actions")
        secrets = {scope: await token(bridge, scope) for scope in scopes} | {"full": await token(bridge)}
        revoked = await token(bridge, "ask", "observe", "memory:read", name="gone")
        assert (await bridge.run("users", "revoke-token", "local", "gone"))[0] == 0
        cookie = await bridge.login()

        async def status(method: str, path: str, **headers: str) -> int:
            async with session.request(method, path, headers=headers) as response:
                answer = await response.json()
                # Each door's own shape, and nothing else.
                assert list(answer) == ["error"]
                assert answer["error"]["message"]
                return response.status

        for method, path, needed in DOORS:
            for scope, secret in secrets.items():
                found = await status(method, path, Authorization=f"Bearer {secret}")
                # Who is let in is told that this request makes no sense.
                assert (found in {400, 404, 422}) if scope in {needed, "full"} else found == 403, (path, scope)
            for wrong in (revoked, "", "x", revoked[:-1], "bridge-person-" + "x" * 4000, "sprite-x"):
                assert await status(method, path, Authorization=f"Bearer {wrong}") == 401
            assert await status(method, path, Cookie=cookie, Origin=bridge.url) == 401
            assert await status(method, f"{path}{'&' if '?' in path else '?'}token={secrets['full']}") == 401
            assert await status(method, path, Authorization=f"Basic {secrets['full']}") == 401
        assert "connecting" not in bridge.log, "nobody was woken for any of it"
        async with session.get("/metrics") as response:
            figures = await response.text()
        assert 'route="/v1/observations",status="403"' in figures
        assert 'route="/v1/chat/completions",status="401"' in figures
        assert not [secret for secret in (*secrets.values(), revoked) if secret in bridge.log + figures]


# --- chat completions ---


async def test_openais_client_talks_to_the_agent_streamed_and_whole(tmp_path: Path, model: OfflineModel) -> None:
    model.script.agent({"match": "list the files", "text": "I look.", "tool": "Bash", "input": {"command": "ls"}})
    model.script.agent({"match": "list the files", "on": "result", "text": "There are a few."})
    model.script.agent({"match": "fail now", "error": 400, "message": "planted", "times": -1})
    async with scripted_bridge(tmp_path, model) as bridge, client(bridge) as program:
        whole = await program.chat.completions.with_raw_response.create(
            model="sprite",
            messages=[
                {"role": "system", "content": "Answer like a pirate."},
                {"role": "user", "content": "An older message"},
                {"role": "assistant", "content": "An older answer"},
                {"role": "user", "content": "my name is Wilhelmina"},
            ],
            temperature=0.1,
            seed=7,
            user="ada",
        )
        assert sorted(whole.headers["X-Sprite-Ignored"].split(", ")) == ["seed", "temperature"]
        completion = whole.parse()
        assert completion.model == "sprite"
        assert completion.choices[0].finish_reason == "stop"
        assert completion.choices[0].message.content
        assert completion.usage is not None
        assert completion.usage.total_tokens == completion.usage.prompt_tokens + completion.usage.completion_tokens > 0
        (logged,) = observations(bridge.workspace)
        assert logged["user_message"].startswith("my name is Wilhelmina\n\n")
        assert "> Answer like a pirate." in logged["user_message"]
        assert "older" not in logged["user_message"]
        assert logged["mission_id"] == whole.headers["X-Sprite-Mission"]

        chunks = [
            chunk async for chunk in await streamed(program, "list the files", stream_options={"include_usage": True})
        ]
        assert chunks[0].choices[0].delta.role == "assistant"
        text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        assert text == "I look.\n\nThere are a few."
        assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == ["stop"]
        assert chunks[-1].choices == []
        assert chunks[-1].usage.total_tokens > 0

        assert [each.id for each in (await program.models.list()).data] == ["sprite"]
        assert (await program.models.retrieve("sprite")).owned_by == "sprite"
        with pytest.raises(openai.NotFoundError, match="one model"):
            await program.chat.completions.create(model="gpt-5", messages=user("Hello"))
        with pytest.raises(openai.BadRequestError, match="tools of its own") as refused:
            await program.chat.completions.create(
                model="sprite", messages=user("Hello"), tools=[{"type": "function", "function": {"name": "f"}}]
            )
        assert refused.value.param == "tools"
        # A turn that fails at once is an error with a status, streamed or not, and is not sent again by itself.
        before = len(observations(bridge.workspace))
        for stream in (False, True):
            with pytest.raises(openai.APIStatusError, match="planted"):
                await program.chat.completions.create(model="sprite", messages=user("fail now"), stream=stream)
        assert len(observations(bridge.workspace)) == before + 2
        assert "Wilhelmina" not in bridge.log
        assert "pirate" not in bridge.log


async def test_a_picture_is_in_documents_and_named_in_the_mission(tmp_path: Path, model: OfflineModel) -> None:
    picture = b"\x89PNG\r\n\x1a\n" + os.urandom(700_000)
    url = f"data:image/png;base64,{base64.b64encode(picture).decode()}"
    async with scripted_bridge(tmp_path, model) as bridge, client(bridge) as program:
        parts = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": url}}]
        await program.chat.completions.create(model="sprite", messages=user(parts))
        assert (bridge.workspace / "documents/image.png").read_bytes() == picture
        (logged,) = observations(bridge.workspace)
        assert logged["user_message"] == "What is this?\n\nFiles: documents/image.png"


async def test_who_stops_listening_stops_the_mission_and_a_key_keeps_it_going(
    tmp_path: Path, model: OfflineModel
) -> None:
    model.script.agent({"match": "think for ever", "text": THINKING, "hang": True, "times": -1})
    model.script.agent({"match": "think for a while", "text": "It is done.", "delay": 1})
    async with scripted_bridge(tmp_path, model) as bridge, client(bridge) as program:
        stream = await streamed(program, "think for ever")
        async for chunk in stream:
            if chunk.choices[0].delta.content:
                break
        await stream.close()
        await eventually(
            lambda: [row["outcome"] for row in observations(bridge.workspace)] == ["interrupted"], "the mission goes on"
        )
        key = {"Idempotency-Key": "key-1"}
        left = asyncio.create_task(
            program.chat.completions.create(model="sprite", messages=user("think for a while"), extra_headers=key)
        )
        await request_seen(model, lambda r: "think for a while" in r.user_text)
        left.cancel()
        # Whoever comes again with the key gets the answer of the mission that there is, streamed or not.
        again = await program.chat.completions.create(
            model="sprite", messages=user("think for a while"), extra_headers=key
        )
        assert again.choices[0].message.content == "It is done."
        assert await said(await streamed(program, "think for a while", extra_headers=key)) == "It is done."
        assert [row["outcome"] for row in observations(bridge.workspace)] == ["interrupted", "complete"]


@pytest.mark.parametrize("command", [("revoke-token", "local", "phone"), ("revoke", "local")])
async def test_a_stream_whose_token_is_revoked_is_cut_and_its_mission_stopped(
    tmp_path: Path, model: OfflineModel, command: tuple[str, ...]
) -> None:
    model.script.agent({"match": "think for ever", "text": THINKING, "hang": True, "times": -1})
    async with scripted_bridge(tmp_path, model) as bridge, client(bridge, name="phone") as program:
        stream = await streamed(program, "think for ever", extra_headers={"Idempotency-Key": "k"})
        waiting = asyncio.create_task(
            program.chat.completions.create(model="sprite", messages=user("another one"), timeout=PATIENCE)
        )
        async for chunk in stream:
            if chunk.choices[0].delta.content:
                break
        assert (await bridge.run("users", *command))[0] == 0
        with pytest.raises(openai.APIError):
            await said(stream)
        with pytest.raises(openai.AuthenticationError):
            await waiting
        with pytest.raises(openai.AuthenticationError):
            await program.models.list()
        await eventually(
            lambda: "interrupted" in [row["outcome"] for row in observations(bridge.workspace)], "the mission goes on"
        )


async def test_a_question_is_told_in_the_stream_which_goes_on_when_it_is_answered(
    tmp_path: Path, model: OfflineModel
) -> None:
    model.script.agent({"match": "make a file", "tool": "Bash", "input": {"command": "touch documents/made"}})
    model.script.agent({"match": "make a file", "on": "result", "text": "It is made."})
    async with (
        scripted_bridge(tmp_path, model, "--permissions", "ask") as bridge,
        client(bridge) as program,
        bridge.page(await bridge.login()) as page,
    ):
        stream = await streamed(program, "make a file")
        text = ""
        async for chunk in stream:
            text += chunk.choices[0].delta.content or ""
            if "Answer on Sprite's page" in text:
                break
        assert "May Sprite run a command? (touch documents/made)" in text
        question = await page.type("permission_request")
        await page.ask("permission", {"request_id": question["request_id"], "decision": "allow"})
        assert (await said(stream)).endswith("It is made.")
        assert (bridge.workspace / "documents/made").exists()


async def test_a_sprite_that_is_killed_in_the_middle_ends_the_stream_with_an_error(
    tmp_path: Path, model: OfflineModel
) -> None:
    model.script.agent({"match": "think for ever", "text": THINKING, "hang": True, "times": -1})
    async with scripted_bridge(tmp_path, model) as bridge, client(bridge) as program:
        stream = await streamed(program, "think for ever")
        async for chunk in stream:
            if chunk.choices[0].delta.content:
                break
        os.kill(int((bridge.workspace / ".os/run/lock").read_text()), signal.SIGKILL)
        with pytest.raises(openai.APIError, match="stopped in the middle"):
            await said(stream)
        # The next message is answered as ever.
        assert await said(await streamed(program, "Hello"))


# --- observations ---


async def test_observations_are_written_once_whoever_sends_them_how_often(tmp_path: Path) -> None:
    async with running_bridge(tmp_path / "data") as bridge:
        secret = await token(bridge, "observe")
        # Nobody is here: the sprite is started for it.
        status, answer = await post(bridge, secret, batch(turn(1), turn(2), turn(2), turn(3, session="../..")))
        assert (status, answer["stored"], answer["known"]) == (200, 2, 1)
        assert [refused["external_id"] for refused in answer["refused"]] == ["t3"]
        answers = await asyncio.gather(*(post(bridge, secret, batch(*map(turn, range(40)))) for _ in range(4)))
        assert {status for status, _ in answers} == {200}
        assert sum(answer["stored"] for _, answer in answers) == 38
        assert sum(answer["known"] for _, answer in answers) == 4 * 40 - 38
        rows = observations(bridge.workspace)
        assert len(rows) == 40
        assert {(row["source"], row["project"]) for row in rows} == {("my-program", "/home/ada/code")}
        # What is known is not sent to any model before it is curated: nothing was billed.
        assert '"route":"/v1/messages"' not in bridge.log
        assert "Message 1" not in bridge.log


async def test_a_large_call_arrives_whole_and_a_killed_sprite_costs_no_turn(tmp_path: Path) -> None:
    async with running_bridge(tmp_path / "data") as bridge:
        secret = await token(bridge, "observe")
        large = batch(*(turn(number, reply=f"{number} " + "word " * 8_000) for number in range(150)))
        assert len(json.dumps(large)) > 5 * 2**20
        assert (await post(bridge, secret, batch(turn(1000))))[0] == 200
        sending = asyncio.create_task(post(bridge, secret, large))
        await eventually(lambda: len(observations(bridge.workspace)) > 1, "nothing of it has arrived")
        os.kill(int((bridge.workspace / ".os/run/lock").read_text()), signal.SIGKILL)
        status, answer = await sending
        assert (status, answer["refused"]) == (200, [])
        assert answer["stored"] + answer["known"] == 150
        assert len(observations(bridge.workspace)) == 151
        status, answer = await post(bridge, secret, large)
        assert (status, answer) == (200, {"stored": 0, "known": 150, "refused": []})
        assert (await post(bridge, secret, b"{"))[0] == 400
        assert (await post(bridge, secret, batch(turn(1), project="../..")))[1]["refused"]


# --- boot memory ---


async def test_boot_memory_is_text_with_an_etag_and_forgets(tmp_path: Path) -> None:
    async with running_bridge(tmp_path / "data") as bridge, bridge.http() as session:
        secret = await token(bridge, "memory:read")

        async def boot(project: str = "", **headers: str) -> tuple[int, str, str]:
            async with session.get(
                "/v1/memory/boot",
                params={"project": project},
                headers={"Authorization": f"Bearer {secret}", **headers},
            ) as response:
                assert response.status in {304, 503} or response.content_type == "text/plain"
                return response.status, response.headers.get("ETag", ""), await response.text()

        async with bridge.page(await bridge.login()) as page:
            await page.link("ready")
            await page.mission("my name is Wilhelmina")
            await page.ask("system", {"action": "flush"})
            status, etag, text = await boot()
            assert status == 200
            assert "Wilhelmina" in text
            headers = {"If-None-Match": f'"other", W/{etag}'}
            assert await boot(**headers) == (304, etag, "")
            assert (await boot("../.."))[0] == 400
            await page.ask("memory", {"op": "forget", "text": "Wilhelmina", "yes": True})
        status, changed, text = await boot(**{"If-None-Match": etag})
        assert (status, changed != etag) == (200, True)
        assert "Wilhelmina" not in text
