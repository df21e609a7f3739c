"""Claude Code as a person uses it: the real CLI with a separate home, the plugin, and a model on loopback."""

from __future__ import annotations

import asyncio
import hashlib
import importlib.util
import json
import os
import re
import shutil
import sys
import types
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.forking import ROOT, fork_module
from tests.in_thread import PATIENCE

if TYPE_CHECKING:
    from tests.scripted_model import RecordedRequest

_SDK = importlib.util.find_spec("claude_agent_sdk")  # importing it takes 1.4 s
assert _SDK is not None
assert _SDK.origin is not None
CLI = Path(_SDK.origin).parent / "_bundled/claude"
PLUGIN = ROOT / "integrations/claude-code"
REMOTE_PLUGIN = ROOT / "integrations/claude-code-remote"
_PRIVATE = ("ANTHROPIC_", "SPRITE", "BRIDGE_", "CLAUDE", "IS_SANDBOX", "XDG_")


@dataclass(slots=True)
class ClaudeCode:
    """The CLI of one person, without a terminal: each run is one command."""

    home: Path
    model_url: str = "http://127.0.0.1:9"
    extra: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.home.mkdir(parents=True, exist_ok=True)

    @property
    def environment(self) -> dict[str, str]:
        keep = {name: value for name, value in os.environ.items() if not name.startswith(_PRIVATE)}
        own = {
            "HOME": str(self.home),
            "ANTHROPIC_BASE_URL": self.model_url,
            "ANTHROPIC_API_KEY": "offline",
            "CLAUDE_CODE_MAX_RETRIES": "0",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
            "ENABLE_TOOL_SEARCH": "false",
            # A session starts with its MCP servers, also on a busy machine.
            "MCP_CONNECTION_NONBLOCKING": "0",
            "MCP_TIMEOUT": str(int(PATIENCE * 1000)),
            "IS_SANDBOX": "1",
        }
        return {**keep, **own, **self.extra}

    @property
    def logs(self) -> list[Path]:
        """Return the session logs, oldest first."""
        return sorted((self.home / ".claude/projects").rglob("*.jsonl"), key=lambda path: path.stat().st_mtime)

    async def run(self, *arguments: str, cwd: Path | None = None, typed: str = "") -> str:
        """Return the output of one command; raise AssertionError if it failed."""
        process = await asyncio.create_subprocess_exec(
            str(CLI),
            *arguments,
            cwd=cwd or self.home,
            env=self.environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            # It would open an existing terminal, which stops a run in the background.
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(PATIENCE):
                printed = (await process.communicate(typed.encode()))[0].decode()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        assert process.returncode == 0, f"claude {arguments} ended with {process.returncode}: {printed[-3000:]}"
        return printed

    async def say(self, text: str, folder: Path, *arguments: str) -> dict[str, Any]:
        """Send one prompt in a session in a folder; return the CLI's result."""
        flags = ("-p", text, "--output-format", "json", "--permission-mode", "bypassPermissions")
        result: dict[str, Any] = json.loads(await self.run(*arguments, *flags, cwd=folder))
        return result

    @asynccontextmanager
    async def talking(self, folder: Path, *arguments: str) -> AsyncIterator[Callable[[str], Awaitable[None]]]:
        """Open a lasting session in a folder; the yielded function sends a prompt and waits for the turn's end."""
        flags = (
            "-p --verbose --input-format stream-json --output-format stream-json --permission-mode bypassPermissions"
        )
        process = await asyncio.create_subprocess_exec(
            str(CLI),
            *flags.split(),
            *arguments,
            cwd=folder,
            env=self.environment,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
            limit=64 * 2**20,
        )
        assert process.stdin is not None
        assert process.stdout is not None

        async def say(text: str) -> None:
            assert process.stdin is not None
            assert process.stdout is not None
            said = {"type": "user", "message": {"role": "user", "content": text}}
            process.stdin.write(json.dumps(said).encode() + b"\n")
            async with asyncio.timeout(PATIENCE):
                while line := await process.stdout.readline():
                    if json.loads(line)["type"] == "result":
                        return
            raise AssertionError(f"the session ended before {text!r} was answered")

        try:
            yield say
            process.stdin.close()
            async with asyncio.timeout(PATIENCE):
                await process.stdout.read()
                assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()

    async def install(self, plugin: str, marketplace: Path | str, *options: str) -> str:
        """Run the two installation commands."""
        added = await self.run("plugin", "marketplace", "add", str(marketplace))
        return added + await self.run("plugin", "install", f"{plugin}@sprite", *options)

    def note(self, workspace: Path, python: str = sys.executable) -> None:
        """Leave the note of a bridge on this machine."""
        path = self.home / ".config/sprite/claude-code"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"workspace={workspace}\npython={python}\ncode={ROOT}\n")


def patient_plugins(folder: Path) -> Path:
    """Copy the checkout's plugins with unlimited hook timeouts, for busy machines; return the folder."""
    shutil.copytree(ROOT / ".claude-plugin", folder / ".claude-plugin")
    shutil.copytree(ROOT / "integrations", folder / "integrations", symlinks=True)
    hooks = folder / PLUGIN.relative_to(ROOT) / "hooks/hooks.json"
    described = hooks.read_text()
    assert '"timeout": 2\n' in described
    hooks.write_text(described.replace('"timeout": 2\n', f'"timeout": {PATIENCE:.0f}\n'))
    return folder


@asynccontextmanager
async def following(logs: Path, workspace: Path) -> AsyncIterator[None]:
    """Run `python -m sprite follow` beside the sessions; it has read the existing logs."""
    from tests.harness import sprite_environment

    process = await fork_module(
        "sprite",
        "follow",
        str(logs),
        "--workspace",
        str(workspace),
        env=sprite_environment(None),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(PATIENCE):
            assert (await process.stdout.readline()).startswith(b"following")
        yield
    finally:
        process.terminate()
        await process.wait()


def boot_file(workspace: Path, project: Path | None) -> Path:
    """Return the file with the session start memory of a project (None: of no project), and make its folder."""
    folder = workspace / ".os/run/boot"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{hashlib.sha256(os.fsencode(project or '')).hexdigest()}.md"


def session_start_script() -> types.ModuleType:
    """Import the hook's script as a module."""
    spec = importlib.util.spec_from_file_location("session_start", PLUGIN / "scripts/session_start.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def begun_with(log: Path) -> dict[str, list[str]]:
    """Return the outputs of SessionStart hooks in a session's log, by source (startup, resume ...)."""
    found: dict[str, list[str]] = {}
    for line in log.read_text().splitlines():
        attachment = json.loads(line).get("attachment") or {}
        source = re.fullmatch(r"SessionStart:(\w+)", str(attachment.get("hookName")))
        if source and attachment.get("content"):
            found.setdefault(source[1], []).append(str(attachment["content"]))
    return found


def tool_results(request: RecordedRequest) -> str:
    """Return the tool results in a request's conversation, as the model gets them."""
    contents = [message["content"] for message in request.body["messages"] if isinstance(message["content"], list)]
    answers = [block["content"] for content in contents for block in content if block["type"] == "tool_result"]
    return "\n".join(answer if isinstance(answer, str) else json.dumps(answer) for answer in answers)
