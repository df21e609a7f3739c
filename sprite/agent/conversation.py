"""One conversation with the agent: the SDK client, its CLI process, and the only reader of its stream.

Use it from one task only (the runtime's), as the SDK requires.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import claude_agent_sdk as sdk
from claude_agent_sdk.types import HookEvent

from sprite import __version__
from sprite.agent.parent_death import wrapped
from sprite.agent.processes import end_commands, is_stopped
from sprite.agent.tools.connections import ConnectionTools
from sprite.common.tasks import TaskSet
from sprite.config import Settings, is_root
from sprite.errors import AgentError, PeerError
from sprite.protocol.shapes import Effort
from sprite.protocol.tools import CONNECTION_SERVER, TOOL_SERVER
from sprite.sandbox.cli_environment import SCRIPT, cli_environment
from sprite.workspace.user_files import picture_blocks

log = logging.getLogger(__name__)

#: The CLI bundled with the SDK's wheel. Without this path, the SDK searches for another.
BUNDLED_CLI = Path(sdk.__file__).parent / "_bundled/claude"
#: The agent needs only these. The CLI's schedules, worktrees and workflows would take space in every request.
TOOLS = ["Bash", "Read", "Write", "Edit", "WebFetch", "WebSearch", "Agent", "TaskStop"]
#: The CLI's other agent types: the general one is enough, and `statusline-setup` has no use here.
NO_AGENTS = ["Agent(claude)", "Agent(Explore)", "Agent(Plan)", "Agent(statusline-setup)"]
#: Commits are the person's, so the CLI adds no signature and no git instructions. It also does not ask the vendor
#: before it fetches a page from a new host.
CLI_SETTINGS = {
    "attribution": {"commit": "", "pr": ""},
    "includeGitInstructions": False,
    "disableBundledSkills": True,
    "skipWebFetchPreflight": True,
}
#: A turn of this many steps is off track, so it ends and the person decides.
MAX_TURNS = 250
#: One CLI message can carry a whole file.
MAX_MESSAGE_BYTES = 64 * 1024 * 1024
CONNECT_TIMEOUT_SECONDS = 60.0
#: A healthy CLI reads its messages at once, even while a tool runs for hours.
ASK_TIMEOUT_SECONDS = 60.0
INTERRUPT_TIMEOUT_SECONDS = 10.0
#: The SDK's close waits up to 20 s for an unresponsive CLI; after this time the CLI is killed.
CLOSE_TIMEOUT_SECONDS = 5.0
#: A CLI found stopped (SIGSTOP) this many times in a row, this many seconds apart, is killed, because its turn would
#: never end. A CLI that waits for a tool or the model sleeps; it is not in the stopped state.
STOPPED_LOOKS = 2
LOOK_SECONDS = 5.0
STOPPED_WORDS = "it was stopped from outside, did not continue, and was ended; send the message again"
#: The agent is stopped when less than the smaller of these is free on the workspace's disk: bytes, part of the disk.
LEAST_FREE_BYTES, LEAST_FREE_PART = 2 * 2**30, 0.05
#: Lines of the CLI's stderr to keep for the error message when it dies.
STDERR_LINES = 3
_DIED = "The agent's process has died"
#: The only CLI command that is passed on as a command. All other text is sent as written.
COMPACT_COMMAND = "/compact"


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """Options of one conversation: its tools, hooks, permission callback and CLI program (None for the SDK's own)."""

    tools: list[sdk.SdkMcpTool[Any]]
    #: None without a bridge.
    connections: ConnectionTools | None
    hooks: dict[HookEvent, list[sdk.HookMatcher]]
    #: None in `bypass` mode.
    can_use_tool: sdk.CanUseTool | None
    cli_path: Path | None


class Conversation:
    """Run the CLI for one conversation. `on_message` gets every message in order; `on_death` gets the reason, once.

    `on_end` is called whenever the CLI is gone, for any reason.
    """

    def __init__(
        self,
        settings: Settings,
        equipment: AgentOptions,
        prompt_file: Path,
        *,
        on_message: Callable[[sdk.Message], Awaitable[None]],
        on_death: Callable[[AgentError], Awaitable[None]],
        on_end: Callable[[], Awaitable[None]],
    ) -> None:
        self._settings = settings
        self._equipment = equipment
        self._prompt_file = prompt_file
        self._on_message = on_message
        self._on_death = on_death
        self._on_end = on_end
        self._client: sdk.ClaudeSDKClient | None = None
        self._tasks = TaskSet()
        self._stderr: deque[str] = deque(maxlen=STDERR_LINES)
        self._closing = False
        self._why_killed: str | None = None
        self.alive = False

    async def connect(self, resume: str | None, model: str | None = None, effort: Effort | None = None) -> None:
        """Start the CLI, or resume a conversation. Raises AgentError with the reason if it does not start."""
        servers = {TOOL_SERVER: self._equipment.tools}
        if self._equipment.connections is not None:
            servers[CONNECTION_SERVER] = await self._equipment.connections.tools()
        client = sdk.ClaudeSDKClient(self._options(servers, resume, model, effort))
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_SECONDS):
                await client.connect()
        except (sdk.ClaudeSDKError, OSError, TimeoutError, RuntimeError) as error:
            with suppress(sdk.ClaudeSDKError, OSError, RuntimeError):
                await client.disconnect()
            raise AgentError("The agent's process would not start.", self._last_words(error)) from error
        self._client = client
        self.alive = True
        self._tasks.start(self._read(client), "agent stream")
        self._tasks.start(self._end_when_stopped(), "agent watch")

    async def ask(self, text: str, message_uuid: str, images: Sequence[str] = ()) -> None:
        """Send a person's message exactly as written, with its pictures. Raises AgentError if the CLI is gone."""
        content: str | list[dict[str, Any]] = text
        if images:
            try:
                blocks = await asyncio.to_thread(picture_blocks, self._settings.workspace, images)
            except PeerError as error:
                raise AgentError(f"A picture cannot be sent: {error}") from error
            content = [*blocks, {"type": "text", "text": text}]
        message: dict[str, Any] = {
            "type": "user",
            "message": {"role": "user", "content": content},
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
            raise AgentError(f"The agent's process accepted no message for {ASK_TIMEOUT_SECONDS:.0f} s.") from error
        except (sdk.ClaudeSDKError, OSError) as error:
            self.alive = False
            raise _died(self._last_words(error)) from error

    async def interrupt(self, *, spare_background: bool) -> None:
        """Stop the turn, and background agents unless spared. Raises AgentError if the CLI does not answer in time."""
        if self._is_stopped():
            raise AgentError("The agent's process was stopped from outside, so it cannot be interrupted.")
        if self._client is not None:
            await _asked_to_stop(_sparing_interrupt(self._client) if spare_background else self._client.interrupt())

    async def stop_task(self, task_id: str) -> None:
        """Ask the CLI to stop background work. Raises AgentError if it does not answer in time."""
        if self._client is not None:
            await _asked_to_stop(self._client.stop_task(task_id))

    async def close(self) -> None:
        """End the CLI politely, then by force."""
        self._closing = True
        self.alive = False
        client, self._client = self._client, None
        if client is None:
            return
        process_id = _process_id(client)
        # A stopped process would not read the request.
        patience = 0.0 if process_id is not None and is_stopped(process_id) else CLOSE_TIMEOUT_SECONDS
        disconnecting = asyncio.create_task(client.disconnect(), name="agent disconnect")
        done, _ = await asyncio.wait({disconnecting}, timeout=patience)
        if not done:
            log.warning("the agent's process did not end in time and is killed")
            _kill(process_id)
        with suppress(Exception):
            # Errors of the SDK about a process that we just ended are expected.
            await disconnecting
        await end_commands(self._settings.cli_state)
        await self._tasks.close()
        await self._on_end()

    async def _read(self, client: sdk.ClaudeSDKClient) -> None:
        reason = "the process closed its output"
        try:
            async for message in client.receive_messages():
                await self._on_message(message)
        except Exception as error:
            # Any exception here ends this CLI. A bug in a callback is logged with its traceback.
            if not isinstance(error, sdk.ClaudeSDKError):
                log.exception("reading the agent's stream failed")
            reason = self._last_words(error)
        finally:
            # Also when this task is cancelled: a conversation without a reader is over.
            self.alive = False
            await self._on_end()
            if not self._closing:
                await end_commands(self._settings.cli_state)
            # The next turn may have closed it meanwhile; this death is not that turn's.
            if not self._closing:
                await self._on_death(
                    _died(reason) if self._why_killed is None else AgentError(f"{_DIED}: {self._why_killed}")
                )

    async def _end_when_stopped(self) -> None:
        """Kill the CLI if it was stopped (SIGSTOP) or the disk is almost full. The reader then ends the turn."""
        looks = 0
        while self.alive:
            await asyncio.sleep(LOOK_SECONDS)
            looks = looks + 1 if self._is_stopped() else 0
            self._why_killed = STOPPED_WORDS if looks >= STOPPED_LOOKS else full_disk(self._settings.workspace)
            if self._why_killed is not None and self._client is not None:
                log.warning("the agent's process is killed: %s", self._why_killed)
                _kill(_process_id(self._client))
                return

    def _is_stopped(self) -> bool:
        process_id = None if self._client is None else _process_id(self._client)
        return process_id is not None and is_stopped(process_id)

    def _last_words(self, error: BaseException) -> str:
        return (" ".join(self._stderr) or str(error).partition("\n")[0] or type(error).__name__)[:400]

    def _options(
        self,
        servers: Mapping[str, list[sdk.SdkMcpTool[Any]]],
        resume: str | None,
        model: str | None,
        effort: Effort | None,
    ) -> sdk.ClaudeAgentOptions:
        bypass = self._settings.permissions == "bypass"
        configured = self._settings.models
        model = model or next(iter(configured), None)
        # A sandbox ends with this process by itself. The agent on a VM may install packages.
        cli = self._equipment.cli_path or wrapped(BUNDLED_CLI, self._settings.run, SCRIPT, gains_privileges=bypass)
        env = cli_environment(self._settings, self._settings.cli_state)
        if bypass and is_root():
            # The CLI refuses to bypass permissions as root unless the machine is declared a sandbox.
            env["IS_SANDBOX"] = "1"
        return sdk.ClaudeAgentOptions(
            cwd=self._settings.workspace,
            system_prompt={"type": "file", "path": str(self._prompt_file)},
            model=model,
            # The CLI refuses the model itself as its fallback.
            fallback_model=",".join(each for each in configured if each != model) or None,
            effort=effort,
            tools=TOOLS if self._settings.agent_usd is None else ["Bash"],
            disallowed_tools=NO_AGENTS,
            settings=json.dumps(CLI_SETTINGS),
            cli_path=cli,
            resume=resume,
            max_turns=MAX_TURNS,
            max_budget_usd=self._settings.agent_usd,
            permission_mode="bypassPermissions" if bypass else "default",
            can_use_tool=self._equipment.can_use_tool,
            hooks=self._equipment.hooks,
            mcp_servers={name: sdk.create_sdk_mcp_server(name, __version__, tools) for name, tools in servers.items()},
            # The agent can write to its workspace; settings files there could run hooks or redirect the model.
            setting_sources=[],
            strict_mcp_config=True,
            include_partial_messages=True,
            extra_args={"thinking-display": "summarized"},
            max_buffer_size=MAX_MESSAGE_BYTES,
            stderr=lambda line: self._stderr.append(line.strip()),
            env=env,
        )


def full_disk(folder: Path) -> str | None:
    """Return as text why the agent may not go on if the disk is almost full, else None."""
    disk = os.statvfs(folder)
    free = disk.f_bavail * disk.f_frsize
    if free >= min(LEAST_FREE_BYTES, LEAST_FREE_PART * disk.f_blocks * disk.f_frsize):
        return None
    return f"only {free / 2**20:,.0f} MiB are free on the disk; free some space and send the message again"


def _died(details: str) -> AgentError:
    return AgentError(f"{_DIED}.", details)


async def _asked_to_stop(request: Awaitable[None]) -> None:
    try:
        async with asyncio.timeout(INTERRUPT_TIMEOUT_SECONDS):
            await request
    except Exception as error:
        # The SDK raises a bare Exception for a refused control request.
        raise AgentError(f"The agent did not stop when asked: {error}") from error


async def _sparing_interrupt(client: sdk.ClaudeSDKClient) -> None:
    """Interrupt without stopping background agents. The CLI supports this, but the SDK does not offer it."""
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


def _process_id(client: sdk.ClaudeSDKClient) -> int | None:
    """Return the CLI's process id from the SDK's internals. A hanging CLI could not be killed without it."""
    process = getattr(getattr(client, "_transport", None), "_process", None)
    process_id = getattr(process, "pid", None)
    return process_id if isinstance(process_id, int) else None
