"""Real session logs, written by the CLI in conversations with the fake model, and many generated ones."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

# Most importers of this file read recorded logs: only the functions that need the SDK import it (1 s).
if TYPE_CHECKING:
    from claude_agent_sdk import ClaudeSDKClient, Message, ResultMessage

    from tests.scripted_model import OfflineModel

WAIT = "python3 -c 'import time; time.sleep({})'"
#: A command that runs until a file exists.
UNTIL = "until [ -e {} ]; do sleep 0.05; done"


@dataclass(slots=True)
class Recorded:
    """The CLI's own folder after all conversations, and the name of each session."""

    projects: Path
    ids: dict[str, str] = field(default_factory=dict)

    def log(self, name: str) -> Path:
        (found,) = self.projects.rglob(f"{self.ids[name]}.jsonl")
        return found


class Talk:
    """One conversation with the CLI, through the SDK."""

    def __init__(self, client: ClaudeSDKClient) -> None:
        self.client = client

    async def say(self, text: str) -> str:
        """Send a message and wait for the turn's end; return the session's id."""
        await self.client.query(text)
        return await self.ended()

    async def ended(self) -> str:
        from claude_agent_sdk import ResultMessage

        result: ResultMessage = await self.until(lambda m: isinstance(m, ResultMessage))
        return result.session_id

    async def until(self, fits: Callable[[Message], bool]) -> Any:
        async for message in self.client.receive_messages():
            if fits(message):
                return message
        raise AssertionError("the conversation ended")

    async def tool(self) -> None:
        """Wait until the agent has called a tool."""
        from claude_agent_sdk import AssistantMessage, ToolUseBlock

        await self.until(
            lambda m: isinstance(m, AssistantMessage) and any(isinstance(block, ToolUseBlock) for block in m.content)
        )

    async def text_begins(self) -> None:
        from claude_agent_sdk import StreamEvent

        await self.until(lambda m: isinstance(m, StreamEvent) and m.event["type"] == "content_block_delta")

    async def stop(self) -> str:
        await self.client.interrupt()
        return await self.ended()


@asynccontextmanager
async def talking(folder: Path, url: str, **options: Any) -> AsyncIterator[Talk]:
    from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient

    from tests.harness import sprite_environment

    project = folder / "project"
    project.mkdir(exist_ok=True)
    environment = sprite_environment(url)
    chosen = {
        "cwd": project,
        "permission_mode": "bypassPermissions",
        "setting_sources": [],
        "system_prompt": "You are a helpful agent.",
        "include_partial_messages": True,
        "env": {
            **{k: v for k, v in environment.items() if k.startswith(("ANTHROPIC", "CLAUDE"))},
            "CLAUDE_CONFIG_DIR": str(folder / "claude"),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
            "ENABLE_TOOL_SEARCH": "false",
            "IS_SANDBOX": "1",
        },
    }
    async with ClaudeSDKClient(ClaudeAgentOptions(**{**chosen, **options})) as client:
        yield Talk(client)


async def record(folder: Path) -> Recorded:
    """Record every kind of conversation that a log can hold."""
    from tests.scripted_model import OfflineModel

    recorded = Recorded(folder / "claude/projects")
    commands = folder / "project/.claude/commands"
    commands.mkdir(parents=True)
    (commands / "greet.md").write_text("Say hello to $ARGUMENTS and be very kind.")
    async with OfflineModel() as model:
        # Starting the CLI takes a second: most sessions start with a `/clear` in the same process.
        async with talking(folder, model.url, setting_sources=["project"]) as talk:
            await _everyday(talk, model, recorded)
            await _troubled(talk, model, recorded)
            await _delegating(talk, model, recorded, folder / "project")
            await _commands(talk, recorded)
        await _resumed(folder, model, recorded)
    return recorded


async def _everyday(talk: Talk, model: OfflineModel, recorded: Recorded) -> None:
    call = {"type": "tool_use", "name": "Bash"}
    both = [{"type": "text", "text": "Two at once."}, *({**call, "input": {"command": f"echo {x}"}} for x in "ab")]
    model.script.agent({"match": "both", "blocks": both}, {"match": "fill it", "usage": {"input_tokens": 990000}})
    recorded.ids["everyday"] = await talk.say("Hello there")
    for text in (
        "run `echo out; echo err >&2`",
        "run `ls /nowhere`",
        "do both in parallel",
        "My name is Ada and I prefer tea.",
        "/compact",
        "Hello after the compaction",
        "please fill it",
        "Hello after the automatic one",
    ):
        await talk.say(text)


async def _troubled(talk: Talk, model: OfflineModel, recorded: Recorded) -> None:
    model.script.agent(
        {"match": "refuse me", "error": 400, "times": -1},
        {"match": "think for ever", "hang": True},
        {"match": "half of it", "hang": True, "text": "Half of this is seen. " * 20, "chunk_delay": 0.01},
    )
    await talk.say("/clear")
    recorded.ids["troubled"] = await talk.say("refuse me")
    await talk.say("Hello after the error")
    await talk.client.query(f"run `{WAIT.format(30)}`")
    await talk.tool()
    await talk.stop()
    await talk.client.query("think for ever")
    await model.seen(lambda r: "think for ever" in r.user_text)
    await talk.stop()
    await talk.client.query("say half of it")
    await talk.text_begins()
    await talk.stop()
    await talk.say("Hello after all")


async def _delegating(talk: Talk, model: OfflineModel, recorded: Recorded, project: Path) -> None:
    agent = {"type": "tool_use", "name": "Agent"}
    job = {"description": "a job", "prompt": "run `echo from below`", "subagent_type": "general-purpose"}
    bash = {"type": "tool_use", "name": "Bash"}
    # It runs for a moment after the agent has ended, so that the report comes within the turn.
    wait = {**bash, "input": {"command": f"{UNTIL.format('reported')}; {WAIT.format(1)}"}}
    model.script.agent(
        {"match": "in front", "on": "prompt", "blocks": [{**agent, "input": {**job, "run_in_background": False}}]},
        {"match": "meanwhile", "on": "prompt", "blocks": [{**agent, "input": job}, wait]},
        {"match": "the first", "on": "prompt", "blocks": [{**bash, "input": {"command": UNTIL.format("said")}}]},
    )
    await talk.say("/clear")
    recorded.ids["delegating"] = await talk.say("use a subagent to run `echo from behind`")
    await talk.ended()
    await talk.say("one in front please")
    before = _of_subagents(model)
    await talk.client.query("one meanwhile please")
    # Its call, and the reply to the result.
    await model.seen(lambda _: _of_subagents(model) >= before + 2)
    (project / "reported").touch()
    await talk.ended()
    await talk.client.query("Hello, the first")
    await talk.tool()
    await talk.client.query("Hello, the second")
    # The turn continues until the CLI can read it.
    (project / "said").touch()
    await talk.ended()


def _of_subagents(model: OfflineModel) -> int:
    return sum(request.kind == "subagent" for request in model.requests)


async def _commands(talk: Talk, recorded: Recorded) -> None:
    await talk.say("/clear")
    recorded.ids["commands"] = await talk.say("Hello to commands")
    for text in ("/cost", "/nosuch thing", "/greet Ada Lovelace", "/clear"):
        await talk.say(text)
    recorded.ids["cleared"] = await talk.say("Hello after clearing")


async def _left(talk: Talk, model: OfflineModel, recorded: Recorded) -> None:
    """Kill its process in the middle of a turn."""
    model.script.agent({"match": "never answered", "hang": True})
    await talk.say("/clear")
    recorded.ids["left"] = await talk.say("Hello before the end")
    await talk.client.query("this is never answered")
    await model.seen(lambda r: "never answered" in r.user_text)


async def _resumed(folder: Path, model: OfflineModel, recorded: Recorded) -> None:
    model.script.agent({"match": "in circles", "tool": "Bash", "input": {"command": "true"}, "times": -1})
    async with talking(folder, model.url, resume=recorded.ids["troubled"], max_turns=2) as talk:
        await talk.say("Hello, resumed")
        await talk.say("/clear")
        recorded.ids["circles"] = await talk.say("go in circles")
    async with talking(folder, model.url, resume=recorded.ids["troubled"], fork_session=True) as talk:
        recorded.ids["forked"] = await talk.say("Hello, forked")
        # The very last turn has no answer: an immediate reader leaves no other turn for later.
        await _left(talk, model, recorded)


# --- generated logs ---

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_TOOL_USE = re.compile(r"toolu_[0-9a-f]{24}")
_SESSION = re.compile(r'"sessionId":"[^"]+"')
_TIMESTAMP = re.compile(r'"timestamp":"[^"]+"')
_BEGINS = '"promptSource":'
BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)


def write_many(log: Path, folder: Path, *, sessions: int, turns: int) -> int:
    """Write logs in the format of a real one, with `turns` turns each; return the number of bytes."""
    blocks = _blocks(log.read_text(encoding="utf-8").splitlines(keepends=True))
    folder.mkdir(parents=True, exist_ok=True)
    written = 0
    for number in range(sessions):
        session = f"00000000-0000-4000-8000-{number:012x}"
        first = number * turns
        # The first turn's lines hold the tools and the prompt, which the CLI writes once per session.
        rest = (_copy(blocks[1 + n % (len(blocks) - 1)], session, n) for n in range(first + 1, first + turns))
        text = "".join([_copy(blocks[0], session, first), *rest])
        (folder / f"{session}.jsonl").write_text(text, encoding="utf-8")
        written += len(text.encode())
    return written


def write_copy(log: Path, session: str, number: int) -> None:
    """Copy a log as another session with the same text, `number` minutes after the first copy."""
    log.with_stem(session).write_text(_copy(log.read_text(encoding="utf-8"), session, number), encoding="utf-8")


def _blocks(lines: list[str]) -> list[str]:
    """Return the lines of a log, split before each prompt, up to its first compaction."""
    blocks: list[list[str]] = [[]]
    for line in lines:
        if '"compact_boundary"' in line:
            break
        if _BEGINS in line:
            blocks.append([])
        blocks[-1].append(line)
    return ["".join(block) for block in blocks[1:-1]]


def _copy(block: str, session: str, number: int) -> str:
    """Copy a turn with new ids, another time, and another session."""
    times = (BEGINNING + timedelta(minutes=number, milliseconds=step) for step in range(60_000))
    block = _UUID.sub(lambda found: f"{found[0][:24]}{number:012x}", block)
    block = _SESSION.sub(f'"sessionId":"{session}"', block)
    block = _TOOL_USE.sub(lambda found: f"{found[0][:18]}{number:012x}", block)
    return _TIMESTAMP.sub(lambda _: f'"timestamp":"{next(times).isoformat(timespec="milliseconds")}"', block)
