"""The bridge's APIs for other programs, on a real bridge and sprite: OpenAI's client and plain HTTP.

All tests share one bridge in permission mode `ask`.
"""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import signal
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from bridge.admin import control
from tests.bridge_harness import Bridge, running_bridge
from tests.harness import PATIENCE, ROOT, observations, start_forked
from tests.inspection import eventually
from tests.scripted_model import OfflineModel

# The import takes 0.5 s, so the tests that need it import it.
if TYPE_CHECKING:
    import openai

pytestmark = pytest.mark.asyncio(loop_scope="module")

DOORS = [
    ("POST", "/v1/observations", "observe"),
    ("GET", "/v1/memory/boot?project=../..", "memory:read"),
    ("POST", "/v1/chat/completions", "ask"),
    ("GET", "/v1/models/none", "ask"),
]
#: Half of this text must still be streaming when a test stops it.
THINKING = "I think about it. " * 50


@dataclass
class Stage:
    """A bridge, its sprite's model and the logged turns."""

    bridge: Bridge
    model: OfflineModel

    async def token(self, *scopes: str, name: str | None = None) -> str:
        """Return a token with these scopes, or with all of them if none are given."""
        async with control.control_session(self.bridge.data / "run") as session:
            asked = {"label": name, "scopes": list(scopes) or None}
            secret: str = (await control.ask(session, "POST", "/users/local/tokens", asked))["secret"]
            return secret

    @asynccontextmanager
    async def program(self, *, name: str | None = None) -> AsyncIterator[openai.AsyncOpenAI]:
        """OpenAI's client with a token for the scope `ask`."""
        import openai

        secret = await self.token("ask", name=name)
        async with openai.AsyncOpenAI(api_key=secret, base_url=f"{self.bridge.url}/v1", timeout=PATIENCE) as program:
            yield program

    async def post(self, secret: str, body: Any) -> tuple[int, dict[str, Any]]:
        """Post observations; return the status and the answer."""
        data = io.BytesIO(body if isinstance(body, bytes) else json.dumps(body).encode())
        headers = {"Authorization": f"Bearer {secret}"}
        async with (
            self.bridge.http() as session,
            session.post("/v1/observations", data=data, headers=headers) as response,
        ):
            return response.status, await response.json()

    def logged(self, words: str) -> list[dict[str, Any]]:
        """Return the turns whose user message contains `words`."""
        log = self.bridge.workspace / ".os/memory/transcript.db"
        return (
            [row for row in observations(self.bridge.workspace) if words in row["user_message"]] if log.exists() else []
        )

    def kill_sprite(self) -> None:
        os.kill(int((self.bridge.workspace / ".os/run/lock").read_text()), signal.SIGKILL)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    async with (
        OfflineModel() as model,
        running_bridge(
            tmp_path_factory.mktemp("doors") / "data",
            "--permissions",
            "ask",
            ANTHROPIC_API_KEY="offline",
            ANTHROPIC_BASE_URL=model.url,
            start_sprite=start_forked,
        ) as bridge,
    ):
        yield Stage(bridge, model)


def user(content: Any) -> Any:
    return [{"role": "user", "content": content}]


async def streamed(program: openai.AsyncOpenAI, text: str, **options: Any) -> Any:
    return await program.chat.completions.create(model="sprite", messages=user(text), stream=True, **options)


async def said(stream: Any) -> str:
    return "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])


async def first_words(stream: Any) -> str:
    """Read a stream up to its first text."""
    async for chunk in stream:
        if chunk.choices[0].delta.content:
            return str(chunk.choices[0].delta.content)
    raise AssertionError("the stream has ended")


def batch(*turns: dict[str, Any], source: str = "my-program", project: str | None = "/home/ada/code") -> dict[str, Any]:
    return {"source": source, "project": project, "turns": list(turns)}


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


# --- authorization ---


async def test_wrong_method_names_allowed_method(stage: Stage) -> None:
    async with stage.bridge.http() as http:
        for method, path, right in (("GET", "/v1/observations", "POST"), ("POST", "/v1/memory/boot", "GET")):
            async with http.request(method, path) as answer:
                assert (answer.status, answer.headers["Allow"]) == (405, right)
                assert f"accepts {right}, not {method}" in (await answer.json())["error"]["message"]
        async with http.get("/v1/responses") as answer:
            assert answer.status == 404
            assert "chat/completions" in (await answer.json())["error"]["message"]


async def test_api_requires_token_with_its_scope(stage: Stage) -> None:
    """Cookies, query parameters and other schemes are rejected."""
    bridge = stage.bridge
    scopes = ("memory:read", "observe", "ask", "actions")
    secrets = {scope: await stage.token(scope) for scope in scopes} | {"full": await stage.token()}
    revoked = await stage.token("ask", "observe", "memory:read", name="gone")
    async with control.control_session(bridge.data / "run") as operator:
        await control.ask(operator, "DELETE", "/users/local/tokens/gone")
    cookie = await bridge.login()
    async with bridge.http() as session:

        async def status(method: str, path: str, **headers: str) -> int:
            async with session.request(method, path, headers=headers) as response:
                answer = await response.json()
                # Every API answers in the same error format.
                assert list(answer) == ["error"]
                assert answer["error"]["message"]
                return response.status

        for method, path, needed in DOORS:
            for scope, secret in secrets.items():
                found = await status(method, path, Authorization=f"Bearer {secret}")
                # An authorized request fails only because its content is invalid.
                assert (found in {400, 404, 422}) if scope in {needed, "full"} else found == 403, (path, scope)
            for wrong in (revoked, "", "x", revoked[:-1], "bridge-person-" + "x" * 4000):
                assert await status(method, path, Authorization=f"Bearer {wrong}") == 401
            assert await status(method, path, Cookie=cookie, Origin=bridge.url) == 401
            assert await status(method, f"{path}{'&' if '?' in path else '?'}token={secrets['full']}") == 401
            assert await status(method, path, Authorization=f"Basic {secrets['full']}") == 401
        async with session.get("/metrics", headers=bridge.operator) as response:
            figures = await response.text()
    assert not bridge.workspace.exists(), "an invalid request woke the sprite"
    assert 'route="/v1/observations",status="403"' in figures
    assert 'route="/v1/chat/completions",status="401"' in figures
    assert not [secret for secret in (*secrets.values(), revoked) if secret in bridge.log + figures]


# --- observations ---


async def test_repeated_observations_are_stored_once(stage: Stage) -> None:
    secret = await stage.token("observe")
    # The first request starts the sprite.
    assert not stage.bridge.workspace.exists()
    status, answer = await stage.post(secret, batch(turn(1), turn(2), turn(2), turn(3, session="../..")))
    assert (status, answer["stored"], answer["known"]) == (200, 2, 1)
    assert [refused["external_id"] for refused in answer["refused"]] == ["t3"]
    answers = await asyncio.gather(*(stage.post(secret, batch(*map(turn, range(40)))) for _ in range(4)))
    assert {status for status, _ in answers} == {200}
    assert sum(answer["stored"] for _, answer in answers) == 38
    assert sum(answer["known"] for _, answer in answers) == 4 * 40 - 38
    rows = stage.logged("Message ")
    assert len(rows) == 40
    assert {(row["source"], row["project"]) for row in rows} == {("my-program", "/home/ada/code")}
    assert (await stage.post(secret, batch(turn(1), project="../..")))[1]["refused"]
    assert (await stage.post(secret, batch(turn(1), source="../..")))[0] == 422
    assert (await stage.post(secret, b"{"))[0] == 400
    assert "Message 1" not in stage.bridge.log


# --- chat completions ---


async def test_openai_client_works_streamed_and_whole(stage: Stage) -> None:
    import openai

    stage.model.script.agent({"match": "fail now", "error": 400, "message": "planted", "times": -1})
    async with stage.program() as program:
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
        (logged,) = stage.logged("my name is Wilhelmina")
        assert logged["user_message"].startswith("my name is Wilhelmina\n\n")
        assert "> Answer like a pirate." in logged["user_message"]
        assert "older" not in logged["user_message"]
        assert logged["mission_id"] == whole.headers["X-Sprite-Mission"]

        chunks = [chunk async for chunk in await streamed(program, "Hello", stream_options={"include_usage": True})]
        assert chunks[0].choices[0].delta.role == "assistant"
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
        assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == ["stop"]
        assert chunks[-1].choices == []
        assert chunks[-1].usage.total_tokens > 0

        assert [each.id for each in (await program.models.list()).data] == ["sprite"]
        assert (await program.models.retrieve("sprite")).owned_by == "sprite"
        with pytest.raises(openai.NotFoundError, match="only model"):
            await program.chat.completions.create(model="gpt-5", messages=user("Hello"))
        with pytest.raises(openai.BadRequestError, match="not supported") as refused:
            await program.chat.completions.create(
                model="sprite", messages=user("Hello"), tools=[{"type": "function", "function": {"name": "f"}}]
            )
        assert refused.value.param == "tools"
        # A turn that fails at once returns an error status, streamed or not, and is not retried.
        for stream in (False, True):
            with pytest.raises(openai.APIStatusError, match="refused the request as invalid"):
                await program.chat.completions.create(model="sprite", messages=user("fail now"), stream=stream)
        assert len(stage.logged("fail now")) == 2
    assert "Wilhelmina" not in stage.bridge.log
    assert "pirate" not in stage.bridge.log


async def test_disconnect_stops_mission(stage: Stage) -> None:
    stage.model.script.agent({"match": "think until I stop you", "text": THINKING, "hang": True, "times": -1})
    async with stage.program() as program:
        stream = await streamed(program, "think until I stop you")
        assert await first_words(stream)
        await stream.close()
        await eventually(
            lambda: [row["outcome"] for row in stage.logged("until I stop you")] == ["interrupted"],
            "the mission is still running",
        )


async def test_permission_question_appears_in_stream(stage: Stage) -> None:
    """The stream continues after the answer."""
    command = "touch documents/made"
    stage.model.script.agent({"match": "make a file", "text": "I try.", "tool": "Bash", "input": {"command": command}})
    stage.model.script.agent({"match": "make a file", "on": "result", "text": "It is made."})
    async with stage.program() as program, stage.bridge.page(token=await stage.token()) as page:
        stream = await streamed(program, "make a file")
        text = ""
        async for chunk in stream:
            text += chunk.choices[0].delta.content or ""
            if "Answer on Sprite's page" in text:
                break
        assert text.startswith("I try.\n\n[May Sprite run a command? (touch documents/made)")
        question = await page.type("permission_request")
        await page.ask("permission", {"request_id": question["request_id"], "decision": "allow"})
        assert (await said(stream)).endswith("\n\nIt is made.")
    assert (stage.bridge.workspace / "documents/made").exists()


# --- documentation ---


async def test_documented_api_examples_work(stage: Stage) -> None:
    page = (ROOT / "docs/http-api.md").read_text()
    blocks = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)
    answers = []
    for block in blocks:
        shell = await asyncio.create_subprocess_exec(
            "bash",
            "-euc",
            block.replace("http://127.0.0.1:8080", stage.bridge.url),
            env={"PATH": os.environ["PATH"], "TOKEN": await stage.token("observe", "memory:read", "ask")},
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await shell.communicate()
        assert shell.returncode == 0
        answers.append(out.decode())
    observed, boot, completed = answers
    assert f"`{observed}`" in page
    assert boot.startswith("<sprite_memory")
    assert completed.startswith("data: ")
    assert completed.endswith("data: [DONE]\n\n")
    for command in re.findall(r"^\$ \S+ -m bridge (.*)$", page, re.MULTILINE):
        assert (await stage.bridge.run(*command.split()))[0] == 0


# --- revoked tokens ---


async def test_revoked_token_stops_stream_and_mission(stage: Stage) -> None:
    await assert_cut_off(stage, "/users/local/tokens/phone")


async def assert_cut_off(stage: Stage, path: str) -> None:
    """Delete a token or a person while a stream runs, and check that every request ends."""
    import openai

    words = f"think until {path.rpartition('/')[2]} goes"
    stage.model.script.agent({"match": words, "text": THINKING, "hang": True, "times": -1})
    async with stage.program(name="phone") as program, control.control_session(stage.bridge.data / "run") as operator:
        stream = await streamed(program, words)
        assert await first_words(stream)
        before = stage.bridge.log.count("mission received")
        waiting = asyncio.create_task(program.chat.completions.create(model="sprite", messages=user("another one")))
        await eventually(
            lambda: stage.bridge.log.count("mission received") > before, "the second mission has not arrived"
        )
        await control.ask(operator, "DELETE", path)
        with pytest.raises(openai.APIError):
            await said(stream)
        with pytest.raises(openai.AuthenticationError):
            await waiting
        with pytest.raises(openai.AuthenticationError):
            await program.models.list()
        await eventually(
            lambda: [row["outcome"] for row in stage.logged(words)] == ["interrupted"], "the mission is still running"
        )


# --- a killed sprite ---


async def test_killed_sprite_ends_stream_but_loses_nothing(stage: Stage) -> None:
    """A large batch of observations is stored completely, and the next message gets an answer."""
    import openai

    stage.model.script.agent({"match": "think until you die", "text": THINKING, "hang": True, "times": -1})
    secret = await stage.token("observe")
    # The curator reads only a small part of tool results, so this batch stays cheap.
    tools = [{"name": "Read", "input": {"file_path": "long.txt"}, "result": "word " * 5_000}]
    turns = [turn(number, user=f"Large {number}", tools=tools) for number in range(54)]
    large = batch(*turns, source="large")
    assert len(json.dumps(large)) > 1.25 * 2**20
    async with stage.program() as program:
        stream = await streamed(program, "think until you die")
        assert await first_words(stream)
        sending = asyncio.create_task(stage.post(secret, large))
        await eventually(lambda: len(stage.logged("Large ")) > 0, "no observation has arrived")
        stage.kill_sprite()
        with pytest.raises(openai.APIError, match="stopped in the middle"):
            await said(stream)
        status, answer = await sending
        assert (status, answer["refused"]) == (200, [])
        assert answer["stored"] + answer["known"] == len(turns)
        assert len(stage.logged("Large ")) == len(turns)
        again = batch(*turns[-3:], source="large")
        assert await stage.post(secret, again) == (200, {"stored": 0, "known": 3, "refused": []})
        assert await said(await streamed(program, "Hello again"))


# --- boot memory ---


async def test_boot_memory_has_etag_and_forgets(stage: Stage) -> None:
    secret = await stage.token("memory:read")
    async with stage.bridge.http() as session, stage.bridge.page(token=await stage.token()) as page:

        async def boot(project: str = "", **headers: str) -> tuple[int, str, str]:
            sent = {"Authorization": f"Bearer {secret}", **headers}
            async with session.get("/v1/memory/boot", params={"project": project}, headers=sent) as response:
                assert response.status != 200 or response.content_type == "text/plain"
                return response.status, response.headers.get("ETag", ""), await response.text()

        await page.link("ready")
        await page.mission("my name is Rosalind")
        await page.ask("system", {"action": "flush"})
        status, etag, text = await boot()
        assert status == 200
        assert "Rosalind" in text
        assert await boot(**{"If-None-Match": f'"other", W/{etag}'}) == (304, etag, "")
        assert (await boot("../.."))[0] == 400
        await page.ask("memory", {"op": "forget", "text": "Rosalind", "yes": True})
        status, changed, text = await boot(**{"If-None-Match": etag})
        assert (status, changed != etag) == (200, True)
        assert "Rosalind" not in text


# --- last test ---


@pytest.mark.soak
async def test_stream_of_removed_person_is_cut(stage: Stage) -> None:
    await assert_cut_off(stage, "/users/local")
