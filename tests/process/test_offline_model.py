"""The fake model over HTTP: message formats of the API, its rules, and scripts.

The file is long because it is one table of requests and answers.
"""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import pytest_asyncio

from bridge.fake_model.model import OfflineModel as BuiltInModel
from bridge.proxy.upstream import Models, Upstream
from tests import api_grammar
from tests.bridge_harness import bridge_environment
from tests.forking import fork_module
from tests.harness import PATIENCE
from tests.model_proxy import BODY, MODEL, proxy
from tests.scripted_model import OfflineModel, Script

# The tests import the SDKs themselves, because every worker imports this file (2 s and 1 s).
if TYPE_CHECKING:
    from anthropic import AsyncAnthropic
    from anthropic.types import Message as ApiMessage
    from claude_agent_sdk import ClaudeSDKClient, Message, ToolResultBlock, ToolUseBlock

#: Tests that share one agent.
shared = pytest.mark.asyncio(loop_scope="module")
CARD_ID = "3f2504e0-4f89-41d3-9a0c-0305e82c3301"
BOOT = """You are a sprite.
<memory_file name="soul.md">
- Tea is discussed with a name only here.
</memory_file>
<memory_file name="user.md">
## Facts
- The user's name is Ada.
- Dates are written DD/MM/YYYY.
</memory_file>
<open_actions>
- Send the report on Friday.
</open_actions>
"""


@pytest.fixture
async def model() -> AsyncIterator[OfflineModel]:
    async with OfflineModel() as running:
        yield running


@pytest.fixture
async def client(model: OfflineModel) -> AsyncIterator[AsyncAnthropic]:
    from anthropic import AsyncAnthropic

    async with AsyncAnthropic(base_url=model.url, api_key="offline", max_retries=0) as connected:
        yield connected


@dataclass(frozen=True, slots=True)
class Home:
    """An agent that the CLI tests share, with its model and workspace."""

    model: OfflineModel
    agent: ClaudeSDKClient
    workspace: Path


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="home")
async def home_(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Home]:
    """Run the agent in one task, because the SDK's task group must be left by the task that entered it."""
    ready: asyncio.Future[Home] = asyncio.get_running_loop().create_future()
    done = asyncio.Event()

    async def own() -> None:
        async with OfflineModel() as model, connected(model, tmp_path_factory.mktemp("agent")) as home:
            ready.set_result(home)
            await done.wait()

    owner = asyncio.create_task(own())
    waits: set[asyncio.Future[Any]] = {owner, ready}
    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    if owner.done():
        owner.result()
    yield ready.result()
    done.set()
    await owner


@pytest.fixture
def agent(home: Home) -> ClaudeSDKClient:
    home.model.script = Script()
    home.model.requests.clear()
    return home.agent


@asynccontextmanager
async def connected(model: OfflineModel, tmp_path: Path) -> AsyncIterator[Home]:
    """Start the real SDK and CLI against the model."""
    from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, create_sdk_mcp_server, tool

    workspace = tmp_path / "workspace"
    workspace.mkdir()
    boot = tmp_path / "boot.md"
    boot.write_text(BOOT)

    @tool("create_card", "Make a card", {"title": str, "card_type": str, "blocks": list})
    async def create_card(_arguments: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": f'{{"card_id": "{CARD_ID}"}}'}]}

    @tool("search_memory", "Search memory", {"query": str})
    async def search_memory(arguments: dict[str, Any]) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": f"1 hit for {arguments['query']}: the boat is red"}]}

    options = ClaudeAgentOptions(
        cwd=workspace,
        system_prompt={"type": "file", "path": str(boot)},
        permission_mode="bypassPermissions",
        setting_sources=[],
        mcp_servers={"sprite": create_sdk_mcp_server("sprite", tools=[create_card, search_memory])},
        env={
            "ANTHROPIC_BASE_URL": model.url,
            "ANTHROPIC_API_KEY": "offline",
            "CLAUDE_CONFIG_DIR": str(tmp_path / "config"),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
            "ENABLE_TOOL_SEARCH": "false",
            "IS_SANDBOX": "1",
        },
    )
    async with ClaudeSDKClient(options) as agent:
        yield Home(model, agent, workspace)


async def turn(agent: ClaudeSDKClient, prompt: str) -> list[Message]:
    await agent.query(prompt)
    return [message async for message in agent.receive_response()]


async def until_notified(agent: ClaudeSDKClient) -> list[Message]:
    """Return messages until the turn that reports the end of a background job has ended."""
    from claude_agent_sdk import ResultMessage, TaskNotificationMessage

    messages: list[Message] = []
    async with asyncio.timeout(PATIENCE):
        async for message in agent.receive_messages():
            messages.append(message)
            done = any(isinstance(seen, TaskNotificationMessage) for seen in messages)
            if done and isinstance(message, ResultMessage):
                break
    return messages


def said(messages: list[Message]) -> str:
    from claude_agent_sdk import AssistantMessage, TextBlock

    blocks = [block for message in messages if isinstance(message, AssistantMessage) for block in message.content]
    return "\n".join(block.text for block in blocks if isinstance(block, TextBlock))


def calls(messages: list[Message]) -> list[ToolUseBlock]:
    from claude_agent_sdk import AssistantMessage, ToolUseBlock

    blocks = [block for message in messages if isinstance(message, AssistantMessage) for block in message.content]
    return [block for block in blocks if isinstance(block, ToolUseBlock)]


def results(messages: list[Message]) -> list[ToolResultBlock]:
    from claude_agent_sdk import ToolResultBlock, UserMessage

    lists = [message.content for message in messages if isinstance(message, UserMessage)]
    return [
        block for blocks in lists if isinstance(blocks, list) for block in blocks if isinstance(block, ToolResultBlock)
    ]


async def ask(client: AsyncAnthropic, text: str, **extra: Any) -> ApiMessage:
    message: ApiMessage = await client.messages.create(
        model="claude-haiku-5-5", max_tokens=1024, messages=[{"role": "user", "content": text}], **extra
    )
    return message


# --- message formats ---


async def test_model_answers_plain_request(client: AsyncAnthropic) -> None:
    message = await ask(client, "Hello there")
    assert message.content[0].type == "text"
    assert message.content[0].text.startswith("Hello!")
    assert message.stop_reason == "end_turn"
    assert message.usage.input_tokens > 0
    assert message.usage.cache_read_input_tokens == 0


async def test_model_streams_text_in_several_deltas(client: AsyncAnthropic, model: OfflineModel) -> None:
    text = "One two three four five six seven.\n\nEight  nine ten eleven twelve."
    model.script.agent({"text": text, "for": "any"})
    async with client.messages.stream(model="m", max_tokens=99, messages=[{"role": "user", "content": "hi"}]) as stream:
        deltas = [part async for part in stream.text_stream]
        final = await stream.get_final_message()
    assert len(deltas) > 2
    assert "".join(deltas) == text
    assert final.stop_reason == "end_turn"


async def test_model_streams_complete_tool_input(client: AsyncAnthropic, model: OfflineModel) -> None:
    given = {"command": "echo " + "x" * 300, "description": "é"}
    model.script.agent({"tool": "Bash", "input": given, "text": "So:", "for": "any"})
    async with client.messages.stream(model="m", max_tokens=99, messages=[{"role": "user", "content": "hi"}]) as stream:
        final = await stream.get_final_message()
    assert [block.type for block in final.content] == ["text", "tool_use"]
    assert final.content[1].type == "tool_use"
    assert final.content[1].input == given
    assert final.stop_reason == "tool_use"


async def test_model_counts_tokens(client: AsyncAnthropic) -> None:
    short = await client.messages.count_tokens(model="m", messages=[{"role": "user", "content": "hi"}])
    long = await client.messages.count_tokens(model="m", messages=[{"role": "user", "content": "hi " * 400}])
    assert long.input_tokens - short.input_tokens == pytest.approx(300, abs=2)


@pytest.mark.parametrize(
    ("text", "kind", "reason"), [("hello", "text", "end_turn"), ("run `ls`", "tool_use", "tool_use")]
)
async def test_built_in_stream_equals_whole_answer(text: str, kind: str, reason: str) -> None:
    """The other tests use the scripted model, which streams with code of its own."""
    from anthropic import AsyncAnthropic

    asked: Any = {"model": "m", "max_tokens": 99, "messages": [{"role": "user", "content": text}]}
    asked["tools"] = [{"name": "Bash", "input_schema": {"type": "object"}}]
    async with BuiltInModel() as model, AsyncAnthropic(base_url=model.url, api_key="k", max_retries=0) as client:
        async with client.messages.stream(**asked) as stream:
            streamed = await stream.get_final_message()
        whole = await client.messages.create(**asked)
    assert (streamed.stop_reason, whole.stop_reason) == (reason, reason)
    assert streamed.usage.output_tokens == whole.usage.output_tokens > 0
    (one,), (other,) = streamed.content, whole.content
    assert one.type == kind
    assert one.model_dump(exclude={"id"}, exclude_none=True) == other.model_dump(exclude={"id"}, exclude_none=True)


async def test_bad_request_returns_api_error(client: AsyncAnthropic) -> None:
    import anthropic

    with pytest.raises(anthropic.BadRequestError, match="invalid_request_error"):
        await client.messages.create(model="m", max_tokens=1, messages=[])
    with pytest.raises(anthropic.NotFoundError, match="not_found_error"):
        await client.models.list()


async def test_sdk_streams_and_counts_through_proxy(model: OfflineModel, tmp_path: Path) -> None:
    """The proxy's other tests are in test_llm_proxy.py; this one checks the SDK."""
    from anthropic import AsyncAnthropic

    async with proxy(tmp_path, Upstream(model.url), models=Models(is_free=True)) as running:
        async with AsyncAnthropic(base_url=running.url, api_key=running.token, max_retries=0) as client:
            async with client.messages.stream(**BODY) as stream:  # type: ignore[arg-type]
                final = await stream.get_final_message()
            counted = await client.messages.count_tokens(model=MODEL, messages=BODY["messages"])  # type: ignore[arg-type]
        assert counted.input_tokens > 0
        call = await running.call()
    assert call["output_tokens"] == final.usage.output_tokens
    assert (call["spent_usd"], call["outcome"], call["status"]) == (0.0, "complete", 200)


async def test_model_answers_curation_in_raw_format(client: AsyncAnthropic, model: OfflineModel) -> None:
    said = '<turn id="31" at="2026-11-20T10:00:00Z" session="s1" origin="user" outcome="complete">'
    turns = f"<turns>\n{said}\n<user>My name is Ada.</user>\n<assistant>ok</assistant>\n</turn>\n</turns>"
    reply = await client.messages.create(
        model="claude-haiku-5-5",
        max_tokens=4096,
        system="You are Sprite's memory curator.\nAnswer in the format.",
        messages=[{"role": "user", "content": turns}],
    )
    text = reply.content[0]
    assert text.type == "text"
    assert text.text.startswith('FACT [t31] The user\'s name is Ada. | "My name is Ada"\n')
    assert "demo model" not in text.text
    assert model.requests[0].kind == "curator"


# --- scripts ---


async def test_scripted_error_has_status_type_and_retry_after(client: AsyncAnthropic, model: OfflineModel) -> None:
    import anthropic

    model.script.agent(
        {"error": 429, "type": "rate_limit_error", "message": "slow down", "retry_after": 1, "for": "any"}
    )
    with pytest.raises(anthropic.RateLimitError, match="slow down") as raised:
        await ask(client, "hi")
    assert raised.value.response.headers["retry-after"] == "1"
    assert (await ask(client, "hi")).stop_reason == "end_turn"


async def test_script_steps_match_in_order_once(client: AsyncAnthropic, model: OfflineModel) -> None:
    model.script.agent(
        {"text": "about cats", "match": "cats", "for": "any"},
        {"text": "first", "for": "any"},
        {"text": "second", "for": "any", "times": 2},
    )
    asked = ["dogs", "dogs", "cats", "dogs", "dogs"]
    answers = [(await ask(client, text)).content[0] for text in asked]
    texts = [block.text for block in answers if block.type == "text"]
    assert texts[:4] == ["first", "second", "about cats", "second"]
    assert "demo model" in texts[4], "no rule of the script answers"
    assert model.script.remaining == 0


async def test_script_function_answers_repeatedly(client: AsyncAnthropic, model: OfflineModel) -> None:
    def rule(body: dict[str, Any]) -> dict[str, Any] | None:
        return {"text": f"{len(body['messages'])} message", "for": "any"} if body["max_tokens"] == 1024 else None

    model.script.agent(rule, audience="any")
    for _ in range(2):
        block = (await ask(client, "hi")).content[0]
        assert block.type == "text"
        assert block.text == "1 message"


async def test_scripted_usage_and_stop_reason_are_merged(client: AsyncAnthropic, model: OfflineModel) -> None:
    model.script.curator({"raw_text": "FACT: cut", "stop_reason": "max_tokens", "usage": {"input_tokens": 990000}})
    message = await ask(client, "<turn></turn>", system="You are Sprite's memory curator")
    assert message.stop_reason == "max_tokens"
    assert message.usage.input_tokens == 990000
    assert message.usage.output_tokens > 0


@pytest.mark.parametrize("stop", [stop for stop in api_grammar.STOPS if stop != "fallback"])
async def test_sdk_reads_each_stop_reason_from_stream(client: AsyncAnthropic, model: OfflineModel, stop: str) -> None:
    """Every block arrives unchanged: thinking with its signature, calls with their arguments."""
    step = api_grammar.STOPS[stop]
    model.script.agent({**step, "for": "any"})
    asked = client.messages.stream(model="m", max_tokens=99, messages=[{"role": "user", "content": "hi"}])
    async with asked as stream:
        final = await stream.get_final_message()
    assert final.stop_reason == step.get("stop_reason", "tool_use" if stop == "tool_use" else "end_turn")
    assert (final.stop_details is not None) is stop.startswith("refusal")
    for meant, came in zip(step["blocks"], final.content, strict=True):
        read = came.model_dump()
        assert {name: read[name] for name in meant} == meant


@pytest.mark.parametrize("kind", api_grammar.LATE_ERRORS)
async def test_sdk_raises_error_of_broken_stream(client: AsyncAnthropic, model: OfflineModel, kind: str) -> None:
    import anthropic

    model.script.agent({"blocks": [api_grammar.TEXT], "stream_error": kind, "at": "in_block", "for": "any"})
    received = ""
    with pytest.raises(anthropic.APIStatusError, match=kind):  # noqa: PT012 - the stream breaks late
        async with client.messages.stream(
            model="m", max_tokens=99, messages=[{"role": "user", "content": "hi"}]
        ) as stream:
            async for part in stream.text_stream:
                received += part
    assert 0 < len(received) < len(str(api_grammar.TEXT["text"]))


async def test_cut_step_drops_connection_during_stream(client: AsyncAnthropic, model: OfflineModel) -> None:
    model.script.agent({"text": "word " * 100, "cut": True, "for": "any"})
    received = ""
    with pytest.raises(Exception, match=r"peer closed|incomplete|disconnected"):  # noqa: PT012 - the stream breaks late
        async with client.messages.stream(
            model="m", max_tokens=99, messages=[{"role": "user", "content": "hi"}]
        ) as stream:
            async for part in stream.text_stream:
                received += part
    assert 0 < len(received) < 500


async def test_hanging_step_does_not_block_shutdown(model: OfflineModel) -> None:
    import anthropic
    from anthropic import AsyncAnthropic

    model.script.agent({"hang": True, "for": "any", "times": 2})
    async with AsyncAnthropic(base_url=model.url, api_key="offline", max_retries=0) as client:
        with pytest.raises(anthropic.APITimeoutError):
            await ask(client.with_options(timeout=0.2), "hi")
        left = asyncio.create_task(ask(client, "still there"))
        await model.seen(lambda request: request.user_text == "still there")
        async with asyncio.timeout(PATIENCE):
            await model.__aexit__(None, None, None)
            with pytest.raises(anthropic.APIConnectionError):
                await left


async def test_step_until_file_pauses_half_way(client: AsyncAnthropic, model: OfflineModel, tmp_path: Path) -> None:
    go_on = tmp_path / "go-on"
    model.script.agent({"text": "word " * 100, "until": str(go_on), "for": "any"})
    received = ""
    async with client.messages.stream(model="m", max_tokens=99, messages=[{"role": "user", "content": "hi"}]) as stream:
        async for part in stream.text_stream:
            received += part
            if len(received) > 200:
                go_on.touch()
            assert go_on.exists() or len(received) < 300
    assert received == "word " * 100


async def test_misspelled_step_is_rejected_by_name() -> None:
    with pytest.raises(msgspec.ValidationError, match="txet"):
        Script(agent=[{"txet": "hello"}])


async def test_model_records_newest_hundred_requests(client: AsyncAnthropic, model: OfflineModel) -> None:
    for number in range(105):
        await ask(client, f"hello {number}")
    assert len(model.requests) == 100
    newest = model.requests[-1]
    assert newest.path == "/v1/messages"
    assert newest.user_text == "hello 104"
    assert newest.body["messages"][0]["content"] == "hello 104"
    assert "anthropic-version" in newest.headers


async def test_model_command_serves_until_sigterm() -> None:
    from anthropic import AsyncAnthropic

    process = await fork_module(
        "bridge", "model", "--port", "0", env=bridge_environment(), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    async with asyncio.timeout(PATIENCE):
        line = (await process.stdout.readline()).decode()
    assert line.startswith("offline model listening on http://127.0.0.1:")
    async with AsyncAnthropic(base_url=line.split()[-1], api_key="offline") as client:
        block = (await ask(client, "hi")).content[0]
    assert block.type == "text"
    assert block.text.startswith("Hello!")
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == 0


# --- the real SDK and CLI ---


@shared
async def test_real_agent_runs_writes_reads_and_recalls(agent: ClaudeSDKClient, home: Home) -> None:
    ran = await turn(agent, "please run `echo hello-$((40+2))` for me")
    assert [call.name for call in calls(ran)] == ["Bash"]
    assert "hello-42" in said(ran)

    wrote = await turn(agent, 'write a file notes/todo.txt containing "buy milk\nand bread"')
    assert (home.workspace / "notes/todo.txt").read_text() == "buy milk\nand bread"
    assert "todo.txt" in said(wrote)

    assert "and bread" in said(await turn(agent, "read the file notes/todo.txt"))

    noted = await turn(agent, "My boat is called Pequod.")
    assert "Noted." in said(noted)

    name = said(await turn(agent, "what is my name?"))
    assert "- The user's name is Ada." in name
    assert "Tea" not in name
    assert "- Dates are written DD/MM/YYYY." in said(await turn(agent, "How should dates be written?"))
    assert "- My boat is called Pequod." in said(await turn(agent, "do you remember my boat?"))
    assert "Send the report" in said(await turn(agent, "what do you know about the report?"))


@shared
async def test_real_agent_creates_card(agent: ClaudeSDKClient) -> None:
    made = await turn(agent, "Make a table of apples 3, pears 5 titled Fruit")
    (create,) = calls(made)
    assert create.name == "mcp__sprite__create_card"
    assert create.input["title"] == "Fruit"
    assert create.input["card_type"] == "table"
    assert create.input["blocks"] == [
        {"type": "table", "data": {"columns": ["Item", "Value"], "rows": [["apples", "3"], ["pears", "5"]]}}
    ]
    assert "card is on the canvas" in said(made)


@shared
async def test_real_agent_searches_memory_for_unknown_facts(
    agent: ClaudeSDKClient,
) -> None:
    """It also searches on request."""
    assert "1 hit for boats: the boat is red" in said(await turn(agent, "search your memory for boats"))
    unknown = await turn(agent, "What colour is the harbour wall?")
    assert [call.name for call in calls(unknown)] == ["mcp__sprite__search_memory"]
    assert "My memory says" in said(unknown)


@shared
async def test_high_usage_compacts_and_keeps_facts(agent: ClaudeSDKClient, home: Home) -> None:
    from claude_agent_sdk import SystemMessage

    await turn(agent, "My boat is called Pequod.")
    home.model.script.agent({"usage": {"input_tokens": 990000}}, {"text": "not for the compaction"})
    await turn(agent, "hello")
    messages = await turn(agent, "what now")
    subtypes = [message.subtype for message in messages if isinstance(message, SystemMessage)]
    assert "compact_boundary" in subtypes
    assert sum(request.kind == "compaction" for request in home.model.requests) == 1
    assert said(messages) == "not for the compaction"
    assert "Pequod" in said(await turn(agent, "what is my boat called?"))


@shared
async def test_interrupted_wait_leaves_next_turn_usable(agent: ClaudeSDKClient, home: Home) -> None:
    from claude_agent_sdk import ResultMessage

    await agent.query("run `sleep 30`")
    messages: list[Message] = []
    async with asyncio.timeout(PATIENCE):
        async for message in agent.receive_response():
            messages.append(message)
            if calls([message]):
                await agent.interrupt()
    # The turn ended long before the wait, with or without an interrupt error.
    assert isinstance(messages[-1], ResultMessage)
    assert said(await turn(agent, "hello")).startswith("Hello!")
    assert home.model.requests[-1].kind == "main"


@shared
async def test_message_during_turn_is_answered_in_it(agent: ClaudeSDKClient, home: Home) -> None:
    await agent.query("run `until [ -e said ]; do python3 -c 'import time; time.sleep(0.05)'; done; echo woke`")
    await home.model.seen(lambda request: "woke" in request.user_text)
    await agent.query("what is my name?")
    # The turn continues until the CLI has read the message.
    (home.workspace / "said").touch()
    async with asyncio.timeout(PATIENCE):
        messages = [message async for message in agent.receive_response()]
    assert results(messages)
    assert "woke" in said(messages)
    assert "Ada" in said(messages)


@shared
async def test_subagent_consumes_no_main_script_step(agent: ClaudeSDKClient, home: Home) -> None:
    home.model.script.agent(
        {
            "tool": "Agent",
            "input": {"description": "d", "prompt": "run `echo deep`", "subagent_type": "general-purpose"},
        },
        {"text": "started"},
        {"text": "main only"},
    )
    await agent.query("go")
    messages = await until_notified(agent)
    assert {"subagent", "notification"} <= {request.kind for request in home.model.requests}
    assert home.model.script.remaining == 1
    assert any("deep" in said([message]) for message in messages)
