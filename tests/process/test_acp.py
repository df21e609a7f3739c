"""`python -m bridge acp` with the protocol's own client and a real bridge, sprite and CLI."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from acp.exceptions import RequestError

from sprite.protocol.pasted import own_text, read_spans
from tests.acp_editor import Editor, editor
from tests.bridge_harness import Bridge, PageClient, bridge_process, running_bridge
from tests.harness import PATIENCE, ROOT, observations
from tests.inspection import eventually
from tests.scripted_model import OfflineModel

pytestmark = pytest.mark.asyncio(loop_scope="module")


LONG = "Good morning to you, Ada. There is a lot to be told about this day, and all of it comes bit by bit."


@dataclass(frozen=True, slots=True)
class Home:
    """A bridge in permission mode `ask`, its scripted model, and an editor that the tests share."""

    bridge: Bridge
    model: OfflineModel
    cookie: str
    client: Editor

    async def session(self) -> str:
        """Open a new session and clear everything the editor has received."""
        for heard in (self.client.updates, self.client.questions, self.client.messages):
            heard.clear()
        self.client.answer = None
        return await self.client.new_session()

    @asynccontextmanager
    async def page(self) -> AsyncIterator[PageClient]:
        """Open a page and wait for its state."""
        async with self.bridge.page(self.cookie) as page:
            await page.type("state_sync")
            yield page


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="home")
async def _home(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Home]:
    folder = tmp_path_factory.mktemp("acp")
    async with (
        OfflineModel() as model,
        running_bridge(
            folder / "data",
            "--permissions",
            "ask",
            ANTHROPIC_API_KEY="sk-ant-of-the-bridge",
            ANTHROPIC_BASE_URL=model.url,
        ) as bridge,
        editor("--data", str(folder / "data")) as client,
    ):
        await client.start()
        yield Home(bridge, model, await bridge.login(), client)


async def test_reply_streams_and_session_lists_capabilities(home: Home, tmp_path: Path) -> None:
    import acp
    from acp.schema import McpServerStdio

    rest = tmp_path / "rest"
    home.model.script.agent({"text": LONG, "until": str(rest), "match": "good morning"})
    async with editor("--data", str(home.bridge.data)) as client:
        hello = await client.connection.initialize(protocol_version=acp.PROTOCOL_VERSION)
        can = hello.agent_capabilities
        assert can is not None
        assert not can.load_session
        assert can.prompt_capabilities is not None
        assert (can.prompt_capabilities.image, can.prompt_capabilities.audio) == (True, False)
        assert can.mcp_capabilities is not None
        assert not can.mcp_capabilities.http
        servers: list[Any] = [McpServerStdio(name="browser", command="x", args=[], env=[])]
        opened = await client.connection.new_session(cwd="/srv/project", mcp_servers=servers)
        saying = asyncio.create_task(client.say(opened.session_id, "good morning"))
        await eventually(lambda: client.shown(opened.session_id) != "", "no text arrives before the reply's end")
        rest.touch()
        assert await saying == "end_turn"
        assert client.shown(opened.session_id) == LONG
        told = [update for _, update in client.updates]
        assert {command.name for command in told[0].available_commands} == {"go-on", "new"}
        assert "MCP servers (browser) are not used" in told[1].content.text
    assert client.process.returncode == 0


async def test_attachment_reaches_agent_but_link_is_unread(home: Home) -> None:
    from acp.helpers import image_block, resource_link_block, text_block

    home.model.script.agent({"text": "A picture.", "match": "what is this"})
    picture = base64.b64encode(b"\x89PNG" + bytes(700_000)).decode()
    blocks: list[Any] = [
        text_block("what is this "),
        image_block(picture, "image/png"),
        resource_link_block("passwd", "file:///etc/passwd"),
    ]
    done = await home.client.connection.prompt(session_id=await home.session(), prompt=blocks)
    assert done.stop_reason == "end_turn"
    assert (home.bridge.workspace / "documents/image.png").read_bytes() == b"\x89PNG" + bytes(700_000)
    (turn,) = [row for row in observations(home.bridge.workspace) if "what is this" in row["user_message"]]
    assert "documents/image.png" in turn["user_message"]
    assert any(b'"type":"image"' in request.raw for request in home.model.requests)
    assert "file:///etc/passwd on the person's own computer, not on yours: only its name" in turn["user_message"]
    assert "root:" not in turn["user_message"]
    assert own_text(turn["user_message"], read_spans(turn["pasted_json"])) == "what is this \n"


async def test_tools_show_diffs_and_ask_permission(home: Home) -> None:
    from acp.schema import ToolCallStart

    path = str(home.bridge.workspace / "artifacts/plan.md")
    home.model.script.agent(
        {"tool": "Write", "input": {"file_path": path, "content": "one\n"}, "match": "write the plan", "on": "prompt"},
        {"text": "Written.", "match": "write the plan", "on": "result"},
        {"tool": "Bash", "input": {"command": "rm -rf artifacts"}, "match": "clean up", "on": "prompt"},
        {"text": "I did not.", "match": "clean up", "on": "result"},
    )
    client, session = home.client, await home.session()
    client.answer = "allow"
    assert await client.say(session, "write the plan") == "end_turn"
    begun = next(call for call in client.calls(session) if isinstance(call, ToolCallStart))
    assert (begun.kind, begun.title) == ("edit", f"Write: {path}")
    (diff,) = begun.content or []
    assert (diff.path, diff.new_text) == (path, "one\n")
    assert [place.path for place in begun.locations or []] == [path]
    assert client.calls(session)[-1].status == "completed"
    client.answer = "deny"
    assert await client.say(session, "clean up") == "end_turn"
    assert client.calls(session)[-1].status == "failed"
    of, call, options = client.questions[-1]
    assert of == session
    assert "rm -rf artifacts" in call.content[0].content.text  # type: ignore[index]
    assert {option.kind for option in options} >= {"allow_once", "reject_once"}
    assert "I did not." in client.shown(session)
    assert Path(path).read_text() == "one\n"


async def test_question_answered_in_page_is_withdrawn(home: Home) -> None:
    home.model.script.agent(
        {"tool": "Bash", "input": {"command": "touch from-page"}, "match": "touch it", "on": "prompt"}
    )
    client, session = home.client, await home.session()
    async with home.page() as page:
        asked = asyncio.create_task(client.say(session, "touch it"))
        request = await page.type("permission_request")
        await client.until(lambda: client.questions)
        await page.ask("permission", {"request_id": request["request_id"], "decision": "allow"})
        assert await asked == "end_turn"
        await client.until(lambda: [m for m in client.messages if m.get("method") == "$/cancel_request"])
        (withdrawn,) = [m for m in client.messages if m.get("method") == "$/cancel_request"]
        (question,) = [m for m in client.messages if m.get("method") == "session/request_permission"]
        assert withdrawn["params"]["requestId"] == question["id"]
        call_id = client.questions[0][1].tool_call_id
        states = [call.status for call in client.calls(session) if call.tool_call_id == call_id]
        assert states == ["in_progress", "in_progress", "completed"]
    assert (home.bridge.workspace / "from-page").exists()


async def test_dead_editor_leaves_question_to_page(home: Home) -> None:
    home.model.script.agent(
        {"tool": "Bash", "input": {"command": "touch after-death"}, "match": "go on alone", "on": "prompt"},
        {"text": "Done all the same.", "match": "go on alone", "on": "result"},
    )
    async with home.page() as page:
        async with editor("--data", str(home.bridge.data)) as client:
            session = await client.start()
            asked = asyncio.create_task(client.say(session, "go on alone"))
            await client.until(lambda: client.questions)
            client.process.kill()
            await client.process.wait()
            asked.cancel()
        request = await page.type("permission_request")
        assert (await page.ask("permission", {"request_id": request["request_id"], "decision": "allow"}))[
            "type"
        ] == "ack"
        assert (await page.end_of(request["mission_id"]))["text"] == "Done all the same."
    assert (home.bridge.workspace / "after-death").exists()


async def test_cancelled_message_stops(home: Home) -> None:
    home.model.script.agent({"text": LONG, "hang": True, "match": "long story"})
    client, session = home.client, await home.session()
    asked = asyncio.create_task(client.say(session, "tell me a long story"))
    await client.until(lambda: "Good" in client.shown(session))
    await client.connection.cancel(session_id=session)
    assert await asked == "cancelled"
    # Cancelling a message also withdraws its question.
    home.model.script.agent({"tool": "Bash", "input": {"command": "touch never"}, "match": "then this"})
    asked = asyncio.create_task(client.say(session, "then this"))
    await client.until(lambda: client.questions)
    await client.connection.cancel(session_id=session)
    assert await asked == "cancelled"
    assert await client.say(session, "hello") == "end_turn"


async def test_session_shows_other_turns(home: Home) -> None:
    from acp.exceptions import RequestError

    home.model.script.agent(
        {"text": "Your tram is at nine.", "match": "when is my tram"},
        {"text": "The other session hears it.", "match": "from the first session"},
    )
    client, session = home.client, await home.session()
    other = await client.new_session()
    async with home.page() as page:
        await page.mission("when is my tram")
    for name in (session, other):
        await client.until(lambda name=name: "nine." in client.shown(name))
        assert client.shown(name) == "<when is my tram>Your tram is at nine."
    assert await client.say(session, "from the first session") == "end_turn"
    await client.until(lambda: "hears it" in client.shown(other))
    assert "<from the first session>The other session hears it." in client.shown(other)
    with pytest.raises(RequestError, match="not open any more"):
        await client.say("sprite-gone", "hello")


@pytest.mark.soak
async def test_editor_waits_for_killed_bridge(tmp_path: Path) -> None:
    """test_acp_conversation.py covers the same case for a lost connection."""
    from acp.exceptions import RequestError

    data = tmp_path / "data"
    async with editor("--data", str(data)) as client:
        async with bridge_process(data, forks_sprites=True) as bridge:
            session = await client.start()
            asked = asyncio.create_task(client.say(session, "run `touch began; sleep 600`"))
            await eventually((data / "workspaces/local/began").exists, "the command has not begun")
            await bridge.kill()
            await client.until(lambda: any("Nothing you sent is lost" in str(update) for _, update in client.updates))
        async with bridge_process(data, forks_sprites=True):
            # This machine's sprite ended with its bridge, and so did the turn.
            with pytest.raises(RequestError, match="was stopped in the middle of this"):
                await asked
            assert await client.say(session, "hello") == "end_turn"
            assert client.shown(session).count("Hello!") == 1


async def test_documented_settings_report_missing_bridge(tmp_path: Path) -> None:
    """The settings are those of `docs/editors.md`."""
    import acp
    from acp.exceptions import RequestError

    page = (ROOT / "docs/editors.md").read_text().replace("/home/ada/sprite", str(ROOT))
    blocks = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", page, re.DOTALL)]
    zed, jetbrains = (block["agent_servers"]["Sprite"] for block in blocks if isinstance(block, dict))
    assert {**zed, "type": ""} == {**jetbrains, "type": ""}
    assert [zed["command"], *zed["args"]] == [str(ROOT / ".venv/bin/python"), "-m", "bridge", "acp"]
    assert zed["env"] == {"PYTHONPATH": str(ROOT)}
    # Editors start the program in a project folder.
    async with editor("--data", str(tmp_path), folder=tmp_path, **zed["env"]) as client:
        with pytest.raises(RequestError, match="python -m bridge serve"):
            await client.connection.initialize(protocol_version=acp.PROTOCOL_VERSION)
        async with asyncio.timeout(PATIENCE):
            assert await client.process.wait() == 1
        assert client.process.stderr is not None
        assert b"No bridge answers" in await client.process.stderr.read()


async def test_remote_bridge_accepts_token(home: Home) -> None:
    import acp
    from acp.exceptions import RequestError

    _, printed, _ = await home.bridge.run("users", "token", "local", "--full", "--name", "elsewhere")
    elsewhere, token = ("--url", home.bridge.url), printed.splitlines()[-1]
    async with editor(*elsewhere, SPRITE_TOKEN=token) as client:
        session = await client.start()
        # Revoking the token in the middle of a message ends the session.
        asked = asyncio.create_task(client.say(session, "run `touch never`"))
        await client.until(lambda: client.questions)
        assert (await home.bridge.run("users", "revoke-token", "local", "elsewhere"))[0] == 0
        with pytest.raises(RequestError, match="your access was revoked"):
            await asked
        async with asyncio.timeout(PATIENCE):
            assert await client.process.wait() == 1
    async with editor("--data", str(home.bridge.data), "--person", "grace") as client:
        with pytest.raises(RequestError, match="no such person, or the person has no access"):
            await client.connection.initialize(protocol_version=acp.PROTOCOL_VERSION)
    async with editor(*elsewhere, SPRITE_TOKEN="wrong") as client:
        with pytest.raises(RequestError, match="does not know this token"):
            await client.connection.initialize(protocol_version=acp.PROTOCOL_VERSION)
    async with home.page() as page:
        await page.ask("interrupt")


async def test_slash_command_begins_session(home: Home) -> None:
    home.model.script.agent({"text": "Noted: the kiln is at 1220.", "match": "kiln"})
    client, session = home.client, await home.session()
    assert await client.say(session, "the kiln goes to 1220 degrees") == "end_turn"
    # An unknown slash command goes to the agent.
    assert await client.say(session, "/etc/hosts is broken") == "end_turn"
    await client.say(session, "/new")
    assert "A new session begins with your next message" in client.shown(session)


async def test_editor_chooses_model_and_effort(home: Home) -> None:
    session = await home.session()
    for name, value in (("model", "claude-opus-4-8"), ("effort", "high"), ("model", "default")):
        answer = await home.client.connection.set_config_option(config_id=name, session_id=session, value=value)
        assert {each.id: each.current_value for each in answer.config_options}[name] == value
    with pytest.raises(RequestError):
        await home.client.connection.set_config_option(config_id="effort", session_id=session, value="endless")
    async with home.page() as page:
        await page.ask("system", {"action": "model", "effort": None})
        await home.client.until(lambda: "config_option_update" in json.dumps(home.client.messages))
