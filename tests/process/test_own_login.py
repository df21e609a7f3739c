"""A sprite by a person's own login of Claude Code or their own cloud: the CLI reaches the model, also for memory."""

from __future__ import annotations

import asyncio
import base64
import json
import struct
import time
import zlib
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, web

from bridge import errors as bridge_errors
from sprite.config import Settings
from sprite.curation.model import CliMessages, RefusedCallError
from sprite.errors import ModelError, OperatorError
from sprite.server import serve
from tests.bridge_harness import run_bridge, running_bridge
from tests.command_line import command
from tests.harness import observations, running_sprite
from tests.inspection import curations, learnings, transcript
from tests.looks import files_below
from tests.model_proxy import served
from tests.scripted_model import OfflineModel

#: It has no shape by which redaction knows it.
TOKEN = "a-planted-login-0123456789"
LOGIN: dict[str, Any] = {"CLAUDE_CODE_OAUTH_TOKEN": TOKEN}
#: Looks for the token in the environments of all programs that a command sees. It is split, to be found nowhere here.
SEARCH = "cat /proc/[0-9]*/environ | tr '\\0' '\\n' | grep -c a-plant'e'd; env | grep -c a-plant'e'd; echo done"


def limited(upstream: str, used: float) -> web.Application:
    """Return a front of the model that reports the limits of a plan as the API does; at 1.0 it refuses."""
    reset, state = str(int(time.time()) + 7200), "allowed" if used < 1 else "rejected"
    found = {"status": state, "reset": reset, "representative-claim": "five_hour"}
    found |= {"5h-status": state, "5h-utilization": str(used), "5h-reset": reset}
    headers = {f"anthropic-ratelimit-unified-{name}": text for name, text in found.items()}

    async def forward(request: web.Request) -> web.StreamResponse:
        body = await request.read()
        if used >= 1:
            error = {"type": "rate_limit_error", "message": "This would exceed your account's rate limit."}
            return web.json_response({"type": "error", "error": error}, status=429, headers=headers)
        async with ClientSession() as session, session.post(f"{upstream}{request.path_qs}", data=body) as answer:
            return web.Response(body=await answer.read(), headers={"Content-Type": answer.content_type, **headers})

    app = web.Application(client_max_size=1 << 26)
    app.router.add_post("/v1/messages", forward)
    return app


async def test_login_runs_agent_and_memory(workspace: Path, model: OfflineModel) -> None:
    model.script.agent({"tool": "Bash", "input": {"command": SEARCH}})
    async with (
        running_sprite(workspace, None, ANTHROPIC_BASE_URL=model.url, **LOGIN) as sprite,
        sprite.client() as client,
    ):
        end = await client.mission("My name is Ada and I prefer tea")
        status = (await client.ask("system", {"action": "flush"}))["payload"]
        check = (await client.ask("system", {"action": "check_model"}))["payload"]
        await client.mission(f"It is {TOKEN}")
    assert (status["memory"]["waiting"], status["last_error"], check["model_answers"]) == (0, None, True)
    assert {request.kind for request in model.requests} == {"main", "curator", "verifier"}
    assert {request.headers["authorization"] for request in model.requests} == {f"Bearer {TOKEN}"}
    assert all("x-api-key" not in request.headers for request in model.requests)
    assert {request.body["model"] for request in model.requests if request.kind == "verifier"} == {"claude-haiku-5-5"}
    assert all(request.body["tools"] == [] for request in model.requests if request.kind != "main")

    assert (end["event"], end["text"].strip("`\n").split()[-3:]) == ("complete", ["0", "0", "done"])
    assert [turn["user_message"][:5] for turn in observations(workspace)] == ["My na", "It is"]
    assert len(transcript(workspace, "SELECT * FROM sessions")) == 1
    assert any("tea" in line for line in learnings(workspace))
    assert [(row["model"], row["cost_usd"]) for row in curations(workspace)] == [("claude-haiku-5-5", 0.0)]
    assert not list((workspace / ".os/run").glob("curator-*"))
    assert files_below(workspace)
    assert not [path for path in files_below(workspace) if TOKEN.encode() in path.read_bytes()]
    assert TOKEN not in (workspace.parent / "stderr.log").read_text()


async def test_plan_limits_replace_dollars(workspace: Path, model: OfflineModel) -> None:
    async with (
        served(limited(model.url, 0.42)) as url,
        running_sprite(workspace, None, ANTHROPIC_BASE_URL=url, **LOGIN) as sprite,
        sprite.client() as client,
    ):
        before = (await client.ask("system", {"action": "status"}))["payload"]["spend"]
        end = await client.mission("Hello")
        spend = (await client.ask("system", {"action": "status"}))["payload"]["spend"]
    assert (before["plan"], end["cost_usd"]) == ([], 0.0)
    assert [(limit["name"], limit["used"]) for limit in spend["plan"]] == [("five hour", 0.42)]
    assert (spend["today"]["agent"], spend["turn"]) == ({"settled": 0.0, "estimated": 0.0},) * 2


async def test_reached_plan_limit_is_told(workspace: Path, model: OfflineModel) -> None:
    async with (
        served(limited(model.url, 1.0)) as url,
        running_sprite(workspace, None, ANTHROPIC_BASE_URL=url, **LOGIN) as sprite,
        sprite.client() as client,
    ):
        end = await client.mission("Hello")
    assert (end["code"], end["retryable"]) == ("plan_limit", False)
    assert end["message"].startswith("Your Claude plan has no usage left")


async def test_key_comes_before_login(workspace: Path, model: OfflineModel) -> None:
    async with running_sprite(workspace, model.url, **LOGIN) as sprite, sprite.client() as client:
        await client.mission("Hello")
        await client.ask("system", {"action": "flush"})
    assert {request.headers.get("x-api-key") for request in model.requests} == {"offline"}
    assert not any("authorization" in request.headers for request in model.requests)


async def test_bridge_passes_login_to_local_sprite(tmp_path: Path, model: OfflineModel) -> None:
    """The sprite calls the model by itself. The bridge admits nobody else."""
    async with (
        running_bridge(tmp_path / "data", ANTHROPIC_BASE_URL=model.url, **LOGIN) as bridge,
        bridge.page(await bridge.login()) as page,
    ):
        await page.type("state_sync")
        assert (await page.end_of(await page.send("mission", {"text": "My name is Ada"})))["event"] == "complete"
        status = (await page.ask("system", {"action": "flush"}))["payload"]
        code, _, err = await bridge.run("users", "add", "ada")
    assert (status["memory"]["waiting"], status["last_error"], status["spend"]["plan"]) == (0, None, [])
    assert {request.headers["authorization"] for request in model.requests} == {f"Bearer {TOKEN}"}
    assert (code, "only your own agent on this machine" in err) == (2, True)
    for path in files_below(tmp_path):
        assert TOKEN.encode() not in path.read_bytes(), path


@pytest.mark.parametrize(
    ("host", "more"),
    [("0.0.0.0", {}), ("127.0.0.1", {"BRIDGE_PUBLIC_URL": "https://sprite.example.org"}), ("127.0.0.1", {"added": ""})],  # noqa: S104
    ids=["address", "public", "people"],
)
async def test_bridge_for_others_refuses_login(tmp_path: Path, host: str, more: dict[str, Any]) -> None:
    if more.pop("added", None) is not None:
        await run_bridge("users", "add", "ada", "--data", str(tmp_path / "data"))
    with pytest.raises(bridge_errors.OperatorError, match="only your own agent on this machine"):
        async with running_bridge(tmp_path / "data", host=host, **LOGIN, **more):
            pass


@pytest.mark.parametrize("more", [{"host": "0.0.0.0"}, {"vm_socket": Path("/")}], ids=["address", "VM"])  # noqa: S104
async def test_login_is_for_own_machine_only(tmp_path: Path, more: dict[str, Any]) -> None:
    settings = Settings(tmp_path, login=TOKEN, **({"port": 0} | more))
    with pytest.raises(OperatorError, match="is your own login"):
        await serve(settings, lambda _host, _port: None, asyncio.Event())


async def test_doctor_live_asks_by_login(tmp_path: Path, model: OfflineModel) -> None:
    told = ("doctor", "--live", "--json", "--yes")
    _, out, err = await command(tmp_path, *told, model_url=None, ANTHROPIC_BASE_URL=model.url, **LOGIN)
    found = json.loads(out)
    assert [part for part in ("turn", "curation", "spend") if not found[part]["ok"]] == [], err
    assert (found["verification"]["lines"], found["verification"]["cost_usd"]) == (40, 0.0)
    assert {request.headers["authorization"] for request in model.requests} == {f"Bearer {TOKEN}"}


@pytest.mark.parametrize(
    ("step", "status", "words"),
    [
        ({"error": 529, "type": "overloaded_error"}, 529, "overloaded"),
        ({"error": 401, "type": "authentication_error"}, 401, "CLAUDE_CODE_OAUTH_TOKEN"),
        ({"text": "So", "cut": True}, None, "."),
    ],
)
async def test_failed_call_raises_like_http(
    tmp_path: Path, model: OfflineModel, step: dict[str, object], status: int | None, words: str
) -> None:
    model.script.agent({**step, "for": "any", "times": -1})
    settings = Settings(tmp_path, base_url=model.url, login=TOKEN)
    settings.run.mkdir(parents=True)
    with pytest.raises(ModelError, match=words) as caught:
        await CliMessages(settings, timeout_seconds=30).create(
            model="claude-haiku-5-5", max_tokens=50, system="Sort it.", user="Turn 1", keep_system=False
        )
    assert (caught.value.status if isinstance(caught.value, RefusedCallError) else None) == status


def cloud(upstream: str, paths: list[str]) -> web.Application:
    """Return the ways of Vertex and Bedrock to a model. Its name is in the path; Bedrock frames each event."""

    async def forward(request: web.Request) -> web.StreamResponse:
        paths.append(request.path)
        is_bedrock = request.path.startswith("/model/")
        name = request.path.split("/")[2] if is_bedrock else request.path.rpartition("/")[2].partition(":")[0]
        body = json.loads(await request.read()) | {"model": name, "stream": True}
        async with ClientSession() as session, session.post(f"{upstream}/v1/messages", json=body) as answer:
            data = await answer.read()
            if not is_bedrock:
                return web.Response(body=data, content_type=answer.content_type)
        events = [line.removeprefix(b"data: ") for line in data.splitlines() if line.startswith(b"data: ")]
        return web.Response(body=b"".join(map(framed, events)), content_type="application/vnd.amazon.eventstream")

    app = web.Application(client_max_size=1 << 26)
    app.router.add_post("/{path:.*}", forward)
    return app


def framed(event: bytes) -> bytes:
    """Return an event as a message of Amazon's event streams."""
    fields = {":event-type": "chunk", ":content-type": "application/json", ":message-type": "event"}
    headers = b"".join(
        struct.pack(">B", len(name)) + name.encode() + struct.pack(">BH", 7, len(value)) + value.encode()
        for name, value in fields.items()
    )
    payload = json.dumps({"bytes": base64.b64encode(event).decode()}).encode()
    prelude = struct.pack(">II", len(headers) + len(payload) + 16, len(headers))
    message = prelude + struct.pack(">I", zlib.crc32(prelude)) + headers + payload
    return message + struct.pack(">I", zlib.crc32(message))


@pytest.mark.parametrize(
    ("kind", "more"),
    [
        ("VERTEX", {"ANTHROPIC_VERTEX_PROJECT_ID": "p", "CLOUD_ML_REGION": "global"}),
        ("BEDROCK", {"AWS_REGION": "eu-west-1"}),
    ],
)
async def test_cloud_runs_agent_and_memory(
    workspace: Path, model: OfflineModel, kind: str, more: dict[str, Any]
) -> None:
    paths: list[str] = []
    async with served(cloud(model.url, paths)) as url:
        more |= {f"CLAUDE_CODE_{way}_{kind}{end}": "1" for way, end in (("USE", ""), ("SKIP", "_AUTH"))}
        more |= {f"ANTHROPIC_{kind}_BASE_URL": url, "SPRITE_MODEL": "claude-sonnet-5", "SPRITE_SANDBOX": "off"}
        async with running_sprite(workspace, None, **more) as sprite, sprite.client() as client:
            assert (await client.mission("My name is Ada and I prefer tea"))["event"] == "complete"
            status = (await client.ask("system", {"action": "flush"}))["payload"]
    assert (status["memory"]["waiting"], status["last_error"]) == (0, None)
    assert {request.kind for request in model.requests} == {"main", "curator", "verifier"}
    assert all(path.startswith(("/projects/p/locations/global/", "/model/")) for path in paths)
