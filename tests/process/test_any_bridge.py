"""Every feature at a bridge without the sprite: two real bridges on one Postgres, and one agent.

Ada's page is open at the first bridge, which owns her sprite; every request goes to the second bridge.
"""

from __future__ import annotations

import asyncio
import json
import os
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from bridge.admin import control
from bridge.config import Settings
from bridge.terminal.endpoints import LocalEndpoint
from tests.bridge_harness import PageClient, bridge_environment
from tests.bridge_pair import BridgePair, two_bridges
from tests.forking import fork_module
from tests.harness import PATIENCE, observations
from tests.inspection import descendants, eventually
from tests.mcp_client import called, mcp_client
from tests.postgres import Server
from tests.scripted_model import OfflineModel

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="stage")
async def stage_(tmp_path_factory: pytest.TempPathFactory, postgres: Server) -> AsyncIterator[BridgePair]:
    async with (
        OfflineModel() as model,
        two_bridges(
            tmp_path_factory.mktemp("any"),
            postgres,
            "--permissions",
            "ask",
            ANTHROPIC_API_KEY="offline",
            ANTHROPIC_BASE_URL=model.url,
        ) as stage,
    ):
        yield stage


async def scoped(stage: BridgePair, *scopes: str) -> str:
    """Return a new token of Ada's, created at the owner."""
    async with control.control_session(stage.owner.data / "run") as session:
        asked = {"label": None, "scopes": list(scopes)}
        secret: str = (await control.ask(session, "POST", "/users/ada/tokens", asked))["secret"]
        return secret


@pytest.mark.parametrize("by", ["cookie", "token"])
async def test_page_and_terminal_are_forwarded(stage: BridgePair, by: str) -> None:
    way: dict[str, Any] = {"cookie": stage.cookie} if by == "cookie" else {"token": stage.token}
    before = stage.passed_on()
    async with stage.other.page(**way) as page:
        await page.link("ready")
        mission = await page.send("mission", {"text": f"Hello by {by}"})
        assert (await page.end_of(mission))["event"] == "complete"
        # A page at the owner shows the same turn.
        assert (await stage.page.end_of(mission))["event"] == "complete"
    await eventually(lambda: stage.passed_on() > before, "the request was not forwarded to the owner")


async def test_downloads_and_previews_are_forwarded(stage: BridgePair) -> None:
    content = os.urandom(3 * 2**20)
    documents = stage.workspace / "documents"
    (documents / "big.bin").write_bytes(content)
    (documents / "a b.txt").write_text("hello")
    headers = {"Cookie": stage.cookie}
    async with stage.other.http() as session:
        async with session.get("/files/documents/big.bin", headers=headers) as response:
            assert (response.status, await response.read()) == (200, content)
            assert "attachment" in response.headers["Content-Disposition"]
        async with session.get(
            "/files/documents/a%20b.txt?preview", headers={"Authorization": f"Bearer {stage.token}"}
        ) as response:
            assert (response.status, await response.text()) == (200, "hello")
            assert "sandbox" in response.headers["Content-Security-Policy"]
    assert (await stage.ask("GET", "/files/none"))[0] == 404
    assert (await stage.ask("GET", "/files/none", headers={"Cookie": "", "Origin": ""}))[0] == 401


async def test_observations_and_boot_memory_are_forwarded(stage: BridgePair) -> None:
    token = await scoped(stage, "observe", "memory:read")
    turns = [
        {
            "external_id": f"k{n}",
            "session": "s",
            "at": 1.0 + n,
            "user": f"I live in Kiel, {n}. {'x' * 30_000}",
            "assistant": "Noted.",
        }
        for n in range(20)
    ]
    body = {"source": "my-program", "project": "/home/ada/code", "turns": turns}
    status, text = await stage.ask("POST", "/v1/observations", token=token, json=body)
    assert (status, json.loads(text)["stored"]) == (200, 20), text
    assert len([row for row in observations(stage.workspace) if "I live in Kiel" in row["user_message"]]) == 20
    status, text = await stage.ask("GET", "/v1/memory/boot?project=/home/ada/code", token=token)
    assert status == 200, text
    assert (await stage.ask("POST", "/v1/observations", token=token, data=b"{"))[0] in {400, 422}
    # Scopes apply here as at the owner.
    assert (await stage.ask("POST", "/v1/chat/completions", token=token, json={}))[0] == 403
    assert (await stage.ask("GET", "/files/a", token=token))[0] == 403
    assert (await stage.ask("GET", "/v1/memory/boot", token="bridge-person-none"))[0] == 401


async def test_chat_completions_are_forwarded(stage: BridgePair) -> None:
    import openai

    token = await scoped(stage, "ask")
    messages: Any = [{"role": "user", "content": "Tell me something. " * 9_000}]
    async with openai.AsyncOpenAI(api_key=token, base_url=f"{stage.other.url}/v1", timeout=PATIENCE) as program:
        whole = await program.chat.completions.create(model="sprite", messages=messages)
        assert whole.choices[0].message.content
        messages = [{"role": "user", "content": "And again"}]
        stream = await program.chat.completions.create(model="sprite", messages=messages, stream=True)
        pieces = [chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices]
        assert "".join(pieces)
        assert [model.id async for model in program.models.list()] == ["sprite"]


async def test_mcp_tools_are_forwarded(stage: BridgePair) -> None:
    token = await scoped(stage, "memory:read", "ask", "actions")
    async with mcp_client(stage.other, token) as client:
        refused, text, _ = await called(client, "add_action", content="Paint the ship")
        assert not refused, text
        refused, text, given = await called(client, "ask_sprite", text="Say hello")
        assert not refused, text
        assert given["outcome"] == "complete"


async def test_notification_answers_permission_question(stage: BridgePair) -> None:
    mission = await stage.page.send("mission", {"text": "run `touch allowed`"})
    question = await stage.page.type("permission_request")
    word = {"request_id": question["request_id"], "decision": "allow"}
    assert (await stage.ask("POST", "/push/permission", json=word, headers={"Origin": "https://evil.example"}))[
        0
    ] == 403
    assert await stage.ask("POST", "/push/permission", json=word) == (204, "")
    assert (await stage.page.end_of(mission))["event"] == "complete"
    assert (stage.workspace / "allowed").exists()


async def test_notification_settings_are_shared(stage: BridgePair) -> None:
    assert await stage.ask("PUT", "/notify/settings", json={"words": True}) == (200, '{"words":true}')
    async with stage.owner.http() as session, session.get("/notify/settings", headers={"Cookie": stage.cookie}) as got:
        assert await got.json() == {"words": True}
    keys = set()
    for bridge in (stage.owner, stage.other):
        async with bridge.http() as session, session.get("/push/key", headers={"Cookie": stage.cookie}) as got:
            keys.add((await got.json())["key"])
    assert len(keys) == 1


async def test_model_proxy_accepts_sprites_at_every_bridge(stage: BridgePair) -> None:
    """A sprite's token is valid at every bridge, and its calls need no forward."""
    tokens = set()
    for pid in descendants(os.getpid()):
        for part in (await asyncio.to_thread(_environment, pid)).split(b"\0"):
            if part.startswith(b"ANTHROPIC_API_KEY=sprite-"):
                tokens.add(part.partition(b"=")[2].decode())
    assert tokens
    body = {"model": "claude-haiku-4-5", "max_tokens": 10, "messages": [{"role": "user", "content": "hello"}]}
    for token in tokens:
        headers = {"X-Api-Key": token, "Authorization": ""}
        assert (await stage.ask("GET", "/v1/models", headers=headers))[0] == 200
        status, text = await stage.ask("POST", "/v1/messages", headers=headers, json=body)
        assert status == 200, text
    assert (await stage.ask("GET", "/v1/models", headers={"X-Api-Key": "sprite-none", "Authorization": ""}))[0] == 401


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


async def test_terminal_endpoint_reaches_sprite(stage: BridgePair) -> None:
    async with LocalEndpoint(Settings(stage.other.data), "ada") as endpoint:
        terminal = PageClient(await endpoint.connect())
        listening = asyncio.create_task(terminal.listen())
        await terminal.send("resume", {})
        mission = await terminal.send("mission", {"text": "Typed at an endpoint"})
        assert (await terminal.end_of(mission))["event"] == "complete"
        assert "Typed at an endpoint" in [row["user_message"] for row in observations(stage.workspace)]
    await listening


@pytest.mark.soak
@pytest.mark.parametrize("by", ["person", "url"])
async def test_terminal_at_other_bridge_reaches_sprite(stage: BridgePair, by: str) -> None:
    """The terminal finds the bridge by its URL or by its data folder."""
    how = ("--url", stage.other.url) if by == "url" else ("--person", "ada", "--data", str(stage.other.data))
    pipe = asyncio.subprocess.PIPE
    environment = bridge_environment(SPRITE_TOKEN=stage.token)
    process = await fork_module("bridge", "chat", *how, env=environment, stdin=pipe, stdout=pipe, stderr=pipe)
    assert process.stdin is not None
    process.stdin.write(f"Typed by {by}\n".encode())
    process.stdin.close()
    async with asyncio.timeout(PATIENCE):
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    assert out
    assert any(f"Typed by {by}" in row["user_message"] for row in observations(stage.workspace))


async def test_forged_forward_header_is_refused(stage: BridgePair) -> None:
    headers = {"X-Bridge-Hop": "1", "X-Bridge-Signature": f"e30=.{'0' * 64}"}
    assert (await stage.ask("GET", "/files/documents/a%20b.txt", headers=headers))[0] == 403


async def test_logout_and_revocation_close_connections_everywhere(stage: BridgePair) -> None:
    _, said, _ = await stage.other.run("users", "link", "ada")
    link = next(word for word in said.split() if "/login?token=" in word)
    # A link that is opened at two bridges at once logs in one browser.
    both = [link, link.replace(stage.other.url, stage.owner.url)]
    async with stage.other.http() as session:
        answers = await asyncio.gather(*(session.get(each, allow_redirects=False) for each in both))
    assert sorted(answer.status for answer in answers) == [303, 401]
    cookie = next(answer.headers["Set-Cookie"].partition(";")[0] for answer in answers if answer.status == 303)
    async with stage.owner.page(cookie) as at_owner, stage.other.page(cookie) as passed_on:
        await at_owner.type("state_sync")
        await passed_on.type("state_sync")
        status, _ = await stage.ask("POST", "/logout", headers={"Cookie": cookie})
        assert status == 303
        assert await at_owner.closed() == aiohttp.WSCloseCode.POLICY_VIOLATION
        assert await passed_on.closed() == aiohttp.WSCloseCode.POLICY_VIOLATION
    assert (await stage.ask("GET", "/", headers={"Cookie": cookie}))[0] == 401
    _, said, _ = await stage.other.run("users", "token", "ada", "--name", "short", "--full")
    token = said.splitlines()[-1]
    async with stage.owner.page(token=token) as page:
        await page.type("state_sync")
        assert (await stage.other.run("users", "revoke-token", "ada", "short"))[0] == 0
        assert await page.closed() == aiohttp.WSCloseCode.POLICY_VIOLATION


async def behind(stage: BridgePair) -> float | None:
    rows: list[dict[str, Any]] = json.loads((await stage.owner.run("status", "--json"))[1])
    found: float | None = next(row["store_behind"] for row in rows if row["sprite"] == "ada")
    return found


async def test_operator_commands_name_owning_bridge(stage: BridgePair, tmp_path: Path) -> None:
    async def told(*command: str) -> str:
        status, out, err = await stage.other.run(*command)
        assert status, out
        # The terminal wraps the lines.
        return "".join((out + err).split())

    target = tmp_path / "ada.zip"
    for command in (
        ("deploy", "ada"),
        ("restore", "ada", "--over"),
        ("export", "ada", str(target), "--from", "machine"),
    ):
        assert f"Thebridgeat{stage.owner.url}hasthissprite" in await told(*command), command
    assert not target.exists()
    # Replicas are the same at both bridges, so the export needs no owner.
    async with asyncio.timeout(PATIENCE):
        while await behind(stage) != 0:  # noqa: ASYNC110 - no event reports the last stored batch
            await asyncio.sleep(0.2)
    status, _, err = await stage.other.run("export", "ada", str(target))
    assert status == 0, err
    assert "made from the replica as of" in " ".join(err.split())
    assert zipfile.is_zipfile(target)


async def test_revoked_person_is_out_at_every_bridge(stage: BridgePair) -> None:
    """This test runs last, because it revokes the only person."""
    import openai

    token = await scoped(stage, "ask")
    async with openai.AsyncOpenAI(api_key=token, base_url=f"{stage.other.url}/v1", timeout=PATIENCE) as program:
        messages: Any = [{"role": "user", "content": "run `touch never`"}]
        stream = await program.chat.completions.create(model="sprite", messages=messages, stream=True)
        async with stage.other.page(stage.cookie) as passed_on:
            await passed_on.type("state_sync")
            assert (await stage.other.run("users", "revoke", "ada"))[0] == 0
            assert await passed_on.closed() == aiohttp.WSCloseCode.POLICY_VIOLATION
        with pytest.raises(openai.APIError, match="This token was revoked"):
            _ = [chunk async for chunk in stream]
    assert await stage.page.closed() == aiohttp.WSCloseCode.POLICY_VIOLATION
    assert not (stage.workspace / "never").exists()
    for bridge in (stage.owner, stage.other):
        async with bridge.http() as session:
            async with session.get("/", headers={"Cookie": stage.cookie}) as response:
                assert response.status == 401
            async with session.get("/files/a", headers={"Authorization": f"Bearer {stage.token}"}) as response:
                assert response.status == 401
