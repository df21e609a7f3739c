"""Shared by all tests: a real sprite process, a client of the wire protocol, and the fake model."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import sys
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

from bridge.providers.child import Child, WorkspaceTakenError
from bridge.providers.provider import HostError
from sprite.config import from_environment
from sprite.errors import SpriteError
from sprite.memory.folders import refuse_what_is_no_file
from sprite.privacy.redaction import DiscreetFilter
from sprite.server import serve
from tests import forking, looks
from tests.forking import ForkedProcess, fork_module
from tests.in_thread import PATIENCE as _PATIENCE
from tests.in_thread import InThread, Main, in_thread, log_file

ROOT = forking.ROOT
dump, observations, rows = looks.dump, looks.observations, looks.rows
#: Bounds every wait of a test; no wait takes this long unless something is broken.
PATIENCE = _PATIENCE

Message = dict[str, Any]
Process = asyncio.subprocess.Process | ForkedProcess


class Client:
    """A client of the sprite's TCP port that records every message."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.received: list[Message] = []
        self._seen = 0

    def send(self, type_: str, payload: Message | None = None, message_id: str | None = None) -> str:
        message_id = message_id or str(uuid.uuid4())
        frame = {"type": type_, "id": message_id, "timestamp": 0, "payload": payload or {}}
        self.writer.write(json.dumps(frame).encode() + b"\n")
        return message_id

    async def next(self) -> Message | None:
        """Return the next message, None at the connection's end."""
        async with asyncio.timeout(PATIENCE):
            line = await self.reader.readline()
        if not line:
            return None
        message: Message = json.loads(line)
        self.received.append(message)
        return message

    async def until(self, predicate: Callable[[Message], bool]) -> Message:
        """Read until a message matches."""
        while (message := await self.next()) is not None:
            if predicate(message):
                return message
        raise AssertionError(f"the connection ended; the last messages were {self.received[-5:]}")

    async def ever(self, predicate: Callable[[Message], bool]) -> Message:
        """Return the first matching message, already received or still to come."""
        return next((m for m in self.received if predicate(m)), None) or await self.until(predicate)

    async def reply(self, message_id: str) -> Message:
        """Return the answer to a message."""
        return await self.until(lambda m: m.get("reply_to") == message_id)

    async def ask(self, type_: str, payload: Message | None = None) -> Message:
        """Send a message and return its answer."""
        return await self.reply(self.send(type_, payload))

    async def end_of(self, mission_id: str) -> Message:
        """Return the payload of the event that ends a mission."""
        message = await self.until(
            lambda m: (
                m["type"] == "agent_event"
                and m["payload"]["mission_id"] == mission_id
                and m["payload"]["event"] in {"complete", "interrupted", "error"}
            )
        )
        payload: Message = message["payload"]
        return payload

    async def mission(self, text: str) -> Message:
        """Send a mission and wait for its end."""
        return await self.end_of(self.send("mission", {"text": text}))

    async def event(self, name: str) -> Message:
        """Return the payload of the next agent event of a kind."""
        message = await self.until(lambda m: m["type"] == "agent_event" and m["payload"]["event"] == name)
        payload: Message = message["payload"]
        return payload

    def events(self, mission_id: str | None = None) -> list[Message]:
        """Return the agent events received so far."""
        return [
            m["payload"]
            for m in self.received
            if m["type"] == "agent_event" and mission_id in {None, m["payload"]["mission_id"]}
        ]

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):  # the server may have been killed
            await self.writer.wait_closed()


class RunningProcess:
    """A process under test, and its two streams."""

    def __init__(self, process: Process) -> None:
        self.process = process

    async def stop(self) -> int:
        """Send SIGTERM; return the exit code."""
        if self.process.returncode is None:
            self.process.send_signal(signal.SIGTERM)
        return await self.ended()

    async def kill(self) -> None:
        """Send SIGKILL."""
        if self.process.returncode is None:
            self.process.kill()
        await self.ended()

    async def ended(self) -> int:
        async with asyncio.timeout(PATIENCE):
            return await self.process.wait()


class Sprite:
    """A listening sprite."""

    def __init__(self, workspace: Path, host: str, port: int) -> None:
        self.workspace = workspace
        self.host = host
        self.port = port

    @property
    def pid(self) -> int:
        """Return the id of its process."""
        return os.getpid()

    @property
    def token(self) -> str:
        return (self.workspace / ".os/run/token").read_text().strip()

    @asynccontextmanager
    async def raw(self) -> AsyncIterator[Client]:
        """Open a connection without sending anything."""
        reader, writer = await asyncio.open_connection(self.host, self.port, limit=64 * 2**20)
        client = Client(reader, writer)
        try:
            yield client
        finally:
            await client.close()

    @asynccontextmanager
    async def client(self, resume: Message | None = None) -> AsyncIterator[Client]:
        """Open an authenticated connection; `auth_ok` is its first recorded message."""
        async with self.raw() as client:
            payload: Message = {"token": self.token, "protocol": 1, "client": "test"}
            if resume is not None:
                payload["resume"] = resume
            client.send("auth", payload)
            await client.until(lambda m: m["type"] == "auth_ok")
            yield client


class SpriteServer(Sprite):
    """A sprite in the event loop of a separate thread."""

    def __init__(self, workspace: Path, server: InThread[tuple[str, int]], host: str, port: int) -> None:
        super().__init__(workspace, host, port)
        self._server = server

    @property
    def runs(self) -> bool:
        """Return whether it has not ended."""
        return self._server.runs

    def cancel_task(self, name: str) -> None:
        """Cancel a task of the sprite from outside."""
        self._server.cancel_task(name)

    async def stop(self) -> None:
        """Stop in order, as SIGTERM does; raise what the server raised."""
        await self._server.stop()

    async def ended(self) -> None:
        """Wait for an unrequested end; raise the server's error."""
        async with asyncio.timeout(PATIENCE):
            await asyncio.shield(asyncio.wrap_future(self._server.ended))


class SpriteProcess(Sprite, RunningProcess):
    """`python -m sprite serve` on a workspace."""

    def __init__(self, workspace: Path, process: Process, host: str, port: int) -> None:
        Sprite.__init__(self, workspace, host, port)
        RunningProcess.__init__(self, process)

    @property
    def pid(self) -> int:
        return self.process.pid


def sprite_environment(model_url: str | None, **extra: str) -> dict[str, str]:
    """Return the environment of a sprite that uses a model on loopback and does not retry for long.

    It prewarms no agent (a second of CPU time each), except in tests of prewarming.
    """
    keep = {k: v for k, v in os.environ.items() if not k.startswith(("ANTHROPIC_", "SPRITE", "CLAUDE", "IS_SANDBOX"))}
    env = {**keep, "CLAUDE_CODE_MAX_RETRIES": "0", "PYTHONUNBUFFERED": "1", "SPRITE_PREWARM_SECONDS": "0"}
    if model_url is not None:
        env |= {"ANTHROPIC_BASE_URL": model_url, "ANTHROPIC_API_KEY": "offline"}
    return env | extra


def home_beside(workspace: Path, name: str = "home") -> Path:
    """Return a separate home folder: agents' shells read start files there, and may leave locks behind."""
    home = workspace.parent / name
    home.mkdir(parents=True, exist_ok=True)
    return home


def sprite_log(workspace: Path) -> logging.Handler:
    """Return the file with a sprite's stderr: `workspace/../stderr.log`."""
    return log_file(workspace.parent / "stderr.log", None, DiscreetFilter())


async def start_in_thread(
    workspace: Path, environment: Mapping[str, str], permissions: str | None = None
) -> SpriteInBridge:
    """Start a sprite for an in-thread bridge (see bridge.providers.child.StartSprite)."""
    server = InThread(
        f"sprite {workspace.name}", _sprite_main(workspace, permissions), sprite_log(workspace), environment
    )
    server.start()
    try:
        async with asyncio.timeout(PATIENCE):
            return SpriteInBridge(server, await asyncio.shield(asyncio.wrap_future(server.listening)))
    except SpriteError as error:
        if "already owns" in str(error):
            raise WorkspaceTakenError(str(error)) from error
        raise HostError(f"The sprite ended: {error}", retryable=False) from error


async def start_forked(workspace: Path, environment: Mapping[str, str], permissions: str | None = None) -> Child:
    """Start a sprite process for an in-thread bridge whose test kills it (see bridge.providers.child.StartSprite)."""
    chosen = () if permissions is None else ("--permissions", permissions)
    pipe = asyncio.subprocess.PIPE
    process = await fork_module(
        "sprite",
        "serve",
        "--workspace",
        str(workspace),
        "--port",
        "0",
        *chosen,
        env=environment,
        stdout=pipe,
        stderr=pipe,
    )
    child = Child(cast("asyncio.subprocess.Process", process))
    try:
        await child._until_listening()
    except BaseException:
        await child.stop()
        raise
    return child


class SpriteInBridge:
    """An in-thread sprite, with the interface of a bridge's child process."""

    def __init__(self, server: InThread[tuple[str, int]], address: tuple[str, int]) -> None:
        self._server = server
        self.address = address

    @property
    def runs(self) -> bool:
        return self._server.runs

    async def ended(self) -> str:
        await asyncio.shield(asyncio.wrap_future(self._server.ended))
        return "The sprite ended."

    async def stop(self) -> None:
        await self._server.stop()


def _sprite_main(workspace: Path, permissions: str | None) -> Main[tuple[str, int]]:
    async def main(listens: Callable[[tuple[str, int]], None], stop: asyncio.Event) -> None:
        settings = from_environment(workspace, {"port": 0, "permissions": permissions})
        refuse_what_is_no_file(settings)
        await serve(settings, lambda host, port: listens((host, port)), stop)

    return main


@asynccontextmanager
async def running_sprite(
    workspace: Path, model_url: str | None, *, permissions: str = "bypass", **extra: str
) -> AsyncIterator[SpriteServer]:
    """Run a sprite in a thread of this process; stop it in order at the end. `extra` are environment variables."""
    # Without a sandbox the agent asks about everything.
    quiet = {"SPRITE_SANDBOX": "off"} if permissions == "ask" else {}
    environment = sprite_environment(model_url, **{"HOME": str(home_beside(workspace)), **quiet, **extra})
    async with in_thread("sprite", _sprite_main(workspace, permissions), sprite_log(workspace), environment) as (
        server,
        (host, port),
    ):
        yield SpriteServer(workspace, server, host, port)


@asynccontextmanager
async def started_sprite(
    workspace: Path,
    model_url: str | None,
    *,
    permissions: str = "bypass",
    program: Sequence[str] = ("sprite",),
    within: Sequence[str] = (),
    **extra: str,
) -> AsyncIterator[Process]:
    """Start a sprite process and yield it immediately; kill it at the end if it still runs.

    `program` is the module that `python -m` runs: the sprite itself, or a wrapper. `within` is a command that execs the
    sprite; with one, or with a library to be preloaded, the process is started instead of forked. The variable
    TESTS_OPEN_FILES limits a forked process's descriptors. Its stderr goes to `workspace/../stderr.log`.
    """
    env = sprite_environment(model_url, **{"HOME": str(home_beside(workspace)), **extra})
    arguments = (*program[1:], "serve", "--workspace", str(workspace), "--port", "0", "--permissions", permissions)
    with (workspace.parent / "stderr.log").open("ab") as stderr:
        process = await start_module(program[0], *arguments, env=env, stderr=stderr, within=within)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def start_module(
    module: str, *arguments: str, env: Mapping[str, str], stderr: Any, within: Sequence[str] = ()
) -> Process:
    """Run `python -m MODULE`, forked if possible; its stdout is a pipe."""
    open_files = env.get("TESTS_OPEN_FILES")
    if within:
        assert open_files is None, "only a forked process is limited"
        return await asyncio.create_subprocess_exec(
            *within,
            sys.executable,
            "-m",
            module,
            *arguments,
            cwd=ROOT,
            env=env,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
        )
    return await fork_module(
        module,
        *arguments,
        env=env,
        stdout=asyncio.subprocess.PIPE,
        stderr=stderr,
        open_files=None if open_files is None else int(open_files),
    )


@asynccontextmanager
async def sprite_process(
    workspace: Path,
    model_url: str | None,
    *,
    permissions: str = "bypass",
    program: Sequence[str] = ("sprite",),
    within: Sequence[str] = (),
    **extra: str,
) -> AsyncIterator[SpriteProcess]:
    """Run a sprite process that accepts connections; stop it at the end, or kill it if necessary."""
    async with started_sprite(
        workspace, model_url, permissions=permissions, program=program, within=within, **extra
    ) as process:
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            line = (await process.stdout.readline()).decode()
        assert line.startswith("sprite listening on "), (workspace.parent / "stderr.log").read_text()[-3000:]
        host, port = line.split()[-1].rsplit(":", 1)
        sprite = SpriteProcess(workspace, process, host, int(port))
        yield sprite
        await sprite.stop()
