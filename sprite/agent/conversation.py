"""One conversation with the agent: the SDK client, the CLI process behind it, and the one reader of its stream.

Used from one task (the runtime's), as the SDK asks. Knows nothing of missions, memory or who is watching: it is
handed hooks, tools and callbacks, and says when the CLI is gone.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import claude_agent_sdk
from claude_agent_sdk import (
    CanUseTool,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    ClaudeSDKError,
    HookMatcher,
    Message,
    SdkMcpTool,
    create_sdk_mcp_server,
)
from claude_agent_sdk.types import HookEvent

from sprite import __version__
from sprite.agent.cli_files import TEMPORARY
from sprite.agent.orphans import end_commands, is_stopped
from sprite.agent.parent_death import wrapped
from sprite.common.tasks import TaskSet
from sprite.config import Settings, is_root
from sprite.errors import AgentError
from sprite.protocol.tools import TOOL_SERVER

log = logging.getLogger(__name__)

#: The CLI that the SDK's wheel carries; without it, the SDK looks for another.
BUNDLED_CLI = Path(claude_agent_sdk.__file__).parent / "_bundled/claude"
#: What the agent is for; the CLI's schedules, worktrees and workflows are not, and each costs room in every request.
TOOLS = ["Bash", "Read", "Write", "Edit", "WebFetch", "WebSearch", "Agent", "TaskStop"]
#: The CLI's other agent types: the general one does, and `statusline-setup` has nothing to set up here.
NO_AGENTS = ["Agent(claude)", "Agent(Explore)", "Agent(Plan)", "Agent(statusline-setup)"]
#: Commits are the person's: nothing of the CLI's making is signed to them, nor is the agent told how to.
#: Nor does the CLI ask the vendor before each new host that a page is fetched from.
CLI_SETTINGS = {
    "attribution": {"commit": "", "pr": ""},
    "includeGitInstructions": False,
    "disableBundledSkills": True,
    "skipWebFetchPreflight": True,
}
#: A turn of this many steps has lost its way; the person is asked how to go on.
MAX_TURNS = 250
#: One message of the CLI's can carry a whole file's content.
MAX_MESSAGE_BYTES = 64 * 1024 * 1024
CONNECT_TIMEOUT_SECONDS = 60.0
#: A CLI that is well reads its messages at once, also while a tool of its runs for hours.
ASK_TIMEOUT_SECONDS = 60.0
INTERRUPT_TIMEOUT_SECONDS = 10.0
#: The SDK's own close waits up to 20 s for a CLI that does not listen; after this it is killed.
CLOSE_TIMEOUT_SECONDS = 5.0
#: A CLI that is found stopped (SIGSTOP) so many times in a row, so many seconds apart, is ended: nothing else would end
#: its turn. One that waits for a tool or the model sleeps, and is never stopped.
STOPPED_LOOKS = 2
LOOK_SECONDS = 5.0
STOPPED_WORDS = "it was stopped from outside, did not go on, and was ended; send the message again"
#: What the CLI writes to stderr, for the message when it dies.
STDERR_LINES = 20
#: The one command of the CLI's that is passed on as a command; other text is the person's words, as written.
COMPACT_COMMAND = "/compact"


@dataclass(frozen=True, slots=True)
class Equipment:
    """What the agent is given: tools, hooks, (in `ask` mode) somebody to ask, and the CLI to start; None: the SDK's."""

    tools: list[SdkMcpTool[Any]]
    hooks: dict[HookEvent, list[HookMatcher]]
    can_use_tool: CanUseTool | None
    cli_path: Path | None


class Conversation:
    """The CLI at work. `on_message` gets every message in order; `on_death` is told in words, once.

    `on_end` is called when the CLI is gone, however that came about.
    """

    def __init__(
        self,
        settings: Settings,
        equipment: Equipment,
        prompt_file: Path,
        *,
        on_message: Callable[[Message], Awaitable[None]],
        on_death: Callable[[str], Awaitable[None]],
        on_end: Callable[[], Awaitable[None]],
    ) -> None:
        self._settings = settings
        self._equipment = equipment
        self._prompt_file = prompt_file
        self._on_message = on_message
        self._on_death = on_death
        self._on_end = on_end
        self._client: ClaudeSDKClient | None = None
        self._tasks = TaskSet()
        self._stderr: list[str] = []
        self._closing = False
        self._was_stopped = False
        self.alive = False

    async def connect(self, resume: str | None) -> None:
        """Starts the CLI, in an earlier conversation if one is named. AgentError says why it would not start."""
        client = ClaudeSDKClient(self._options(resume))
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
                await client.connect()
        except (ClaudeSDKError, OSError, TimeoutError, RuntimeError) as error:
            with suppress(ClaudeSDKError, OSError, RuntimeError):
                await client.disconnect()
            raise AgentError(f"The agent's process would not start: {self._last_words(error)}") from error
        self._client = client
        self.alive = True
        self._tasks.start(self._read(client), "agent stream")
        self._tasks.start(self._end_when_stopped(), "agent watch")

    async def ask(self, text: str, message_uuid: str) -> None:
        """Hands over a person's words, exactly as written. AgentError if the CLI is gone."""
        message: dict[str, Any] = {
            "type": "user",
            "message": {"role": "user", "content": text},
            "parent_tool_use_id": None,
            "uuid": message_uuid,
            # Without it a leading slash would be a command, and "@/etc/passwd" would attach that file.
            "client_composed": text.strip() != COMPACT_COMMAND,
        }
        try:
            if self._client is None:
                raise AgentError
            async with asyncio.timeout(ASK_TIMEOUT_SECONDS):
                await self._client.query(_once(message))
        except TimeoutError as error:
            self.alive = False
            raise AgentError(f"The agent's process took no message for {ASK_TIMEOUT_SECONDS:.0f} s.") from error
        except (ClaudeSDKError, OSError) as error:
            self.alive = False
            raise AgentError(f"The agent's process has died: {self._last_words(error)}") from error

    async def interrupt(self, *, spare_background: bool) -> None:
        """Asks the CLI to stop its turn, and with it its agents in the background unless these are to be spared.

        AgentError if it does not answer in time.
        """
        if self._is_stopped():
            raise AgentError("The agent's process is stopped itself, and hears of no interrupt.")
        if self._client is not None:
            await _asked_to_stop(_sparing_interrupt(self._client) if spare_background else self._client.interrupt())

    async def stop_task(self, task_id: str) -> None:
        """Asks the CLI to stop work in the background. AgentError if it does not answer in time."""
        if self._client is not None:
            await _asked_to_stop(self._client.stop_task(task_id))

    async def close(self) -> None:
        """Ends the CLI: politely, then by force."""
        self._closing = True
        self.alive = False
        client, self._client = self._client, None
        if client is None:
            return
        process_id = _process_id(client)
        # One that is stopped would not hear of it.
        patience = 0.0 if process_id is not None and is_stopped(process_id) else CLOSE_TIMEOUT_SECONDS
        disconnecting = asyncio.create_task(client.disconnect(), name="agent disconnect")
        done, _ = await asyncio.wait({disconnecting}, timeout=patience)
        if not done:
            log.warning("the agent's process did not end in time and is killed")
            _kill(process_id)
        with suppress(Exception):
            # Whatever the SDK says about a process that we have just ended is no news.
            await disconnecting
        await end_commands(self._settings.cli_state)
        await self._tasks.close()
        await self._on_end()

    async def _read(self, client: ClaudeSDKClient) -> None:
        reason = "its output ended"
        try:
            async for message in client.receive_messages():
                await self._on_message(message)
        except Exception as error:
            # Whatever ends the stream ends this CLI; a bug in a callback would too, and is logged whole.
            if not isinstance(error, ClaudeSDKError):
                log.exception("reading the agent's stream failed")
            reason = self._last_words(error)
        finally:
            # Also where this task was ended from outside: a conversation without a reader is over.
            self.alive = False
            await self._on_end()
            if not self._closing:
                await end_commands(self._settings.cli_state)
                words = STOPPED_WORDS if self._was_stopped else reason
                await self._on_death(f"The agent's process has died: {words}")

    async def _end_when_stopped(self) -> None:
        """Ends a CLI that was stopped; the reader then says so to whoever waits for its turn."""
        looks = 0
        while self.alive:
            await asyncio.sleep(LOOK_SECONDS)
            looks = looks + 1 if self._is_stopped() else 0
            if looks >= STOPPED_LOOKS and self._client is not None:
                log.warning("the agent's process was stopped from outside and is killed")
                self._was_stopped = True
                _kill(_process_id(self._client))
                return

    def _is_stopped(self) -> bool:
        process_id = None if self._client is None else _process_id(self._client)
        return process_id is not None and is_stopped(process_id)

    def _last_words(self, error: BaseException) -> str:
        said = " ".join(self._stderr[-3:]) or str(error).partition("\n")[0] or type(error).__name__
        return said[:400]

    def _options(self, resume: str | None) -> ClaudeAgentOptions:
        bypass = self._settings.permissions == "bypass"
        return ClaudeAgentOptions(
            cwd=self._settings.workspace,
            system_prompt={"type": "file", "path": str(self._prompt_file)},
            model=self._settings.model,
            tools=TOOLS,
            disallowed_tools=NO_AGENTS,
            settings=json.dumps(CLI_SETTINGS),
            cli_path=self._cli(),
            resume=resume,
            max_turns=MAX_TURNS,
            permission_mode="bypassPermissions" if bypass else "default",
            can_use_tool=self._equipment.can_use_tool,
            hooks=self._equipment.hooks,
            mcp_servers={TOOL_SERVER: create_sdk_mcp_server(TOOL_SERVER, __version__, self._equipment.tools)},
            # Settings files in a workspace that the agent can write could run hooks or redirect the model.
            setting_sources=[],
            strict_mcp_config=True,
            include_partial_messages=True,
            max_buffer_size=MAX_MESSAGE_BYTES,
            stderr=self._note_stderr,
            env=self._environment(),
        )

    def _cli(self) -> Path | None:
        """Return the program to start; None for the SDK's."""
        sandboxed = self._equipment.cli_path
        # The agent on a VM may install what it needs.
        gains_privileges = sandboxed is not None or self._settings.permissions == "bypass"
        found = wrapped(sandboxed or BUNDLED_CLI, self._settings.run, gains_privileges=gains_privileges)
        # Where no wrapper can be made, the boundary must hold all the same.
        return found or sandboxed

    def _environment(self) -> dict[str, str]:
        settings = self._settings
        env = {
            "CLAUDE_CONFIG_DIR": str(settings.cli_state),
            # Outputs of background commands would outlive their session in /tmp, open to whatever runs there later.
            "CLAUDE_CODE_TMPDIR": str(settings.cli_state / TEMPORARY),
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            # The CLI would keep a memory of its own beside ours, and the agent would write to it.
            "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
            # Else our tools are hidden until the model searches for them.
            "ENABLE_TOOL_SEARCH": "false",
            # A copy of the whole conversation as an agent is nothing that the person has asked for.
            "CLAUDE_CODE_FORK_SUBAGENT": "0",
            # The server's token and the bridge's data are none of the agent's business.
            "SPRITE_TOKEN": "",
            "SPRITE_DATA": "",
        }
        if settings.api_key:
            env["ANTHROPIC_API_KEY"] = settings.api_key
        if settings.auth_token:
            env["ANTHROPIC_AUTH_TOKEN"] = settings.auth_token
        if settings.base_url:
            env["ANTHROPIC_BASE_URL"] = settings.base_url
        if settings.permissions == "bypass" and is_root():
            # The CLI refuses to bypass permissions as root unless it is told that the machine is a sandbox.
            env["IS_SANDBOX"] = "1"
        return env

    def _note_stderr(self, line: str) -> None:
        self._stderr = [*self._stderr[-STDERR_LINES + 1 :], line.strip()]


async def _asked_to_stop(request: Awaitable[None]) -> None:
    try:
        async with asyncio.timeout(INTERRUPT_TIMEOUT_SECONDS):
            await request
    except Exception as error:
        # The SDK raises a bare Exception for a refused control request.
        raise AgentError(f"The agent did not stop when asked: {error}") from error


async def _sparing_interrupt(client: ClaudeSDKClient) -> None:
    """An interrupt that leaves agents in the background alone, which the CLI knows and the SDK does not offer."""
    send = getattr(getattr(client, "_query", None), "_send_control_request", None)
    if send is None:
        await client.interrupt()
    else:
        await send({"subtype": "interrupt", "spare_background_tasks": True})


async def _once(message: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    yield message


def _kill(process_id: int | None) -> None:
    if process_id is not None:
        with suppress(ProcessLookupError):
            os.kill(process_id, signal.SIGKILL)


def _process_id(client: ClaudeSDKClient) -> int | None:
    """The CLI's process id, which the SDK does not offer: without it a CLI that hangs could not be killed."""
    process = getattr(getattr(client, "_transport", None), "_process", None)
    process_id = getattr(process, "pid", None)
    return process_id if isinstance(process_id, int) else None
