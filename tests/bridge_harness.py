"""Shared by the bridge's tests: a real `python -m bridge serve`, and a client of its WebSocket."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from http.cookies import SimpleCookie
from pathlib import Path

import aiohttp

from bridge.__main__ import main as bridge_command
from bridge.app import running
from bridge.commands import serve
from bridge.providers.child import StartSprite
from bridge.telemetry.logs import JsonLines
from tests.forking import PYTHON, fork_module, forking_python
from tests.harness import PATIENCE, Message, Process, RunningProcess, home_beside, start_in_thread, start_module
from tests.in_thread import InThread, call_main, in_thread, log_file

# The settings of a person, or of an outer `make test`, do not apply to tests.
_PRIVATE = ("ANTHROPIC_", "SPRITE", "BRIDGE_", "CLAUDE", "IS_SANDBOX", "XDG_CONFIG", "MAKE", "MFLAGS")


def bridge_environment(**extra: str) -> dict[str, str]:
    """Return an environment without key (the fake model answers) and proxy, whose agents do not retry for long."""
    keep = {name: value for name, value in os.environ.items() if not name.startswith(_PRIVATE)}
    return {**keep, "CLAUDE_CODE_MAX_RETRIES": "0", "PYTHONUNBUFFERED": "1", "SPRITE_PREWARM_SECONDS": "0"} | extra


class PageClient:
    """A WebSocket client of the bridge, like a page or a terminal, which records every message."""

    def __init__(self, websocket: aiohttp.ClientWebSocketResponse) -> None:
        self.websocket = websocket
        self.received: list[Message] = []
        #: The bridge's close code, once it has closed the connection.
        self.close_code: int | None = None
        self._heard: asyncio.Queue[aiohttp.WSMessage] = asyncio.Queue()

    async def listen(self) -> None:
        """Read until the end, even if no test waits: a page answers the bridge's pings."""
        while True:
            frame = await self.websocket.receive()
            self._heard.put_nowait(frame)
            if frame.type is not aiohttp.WSMsgType.TEXT:
                return

    async def send(self, type_: str, payload: Message | None = None, message_id: str | None = None) -> str:
        message_id = message_id or str(uuid.uuid4())
        frame = {"type": type_, "id": message_id, "timestamp": 0, "payload": payload or {}}
        await self.websocket.send_str(json.dumps(frame))
        return message_id

    async def next(self) -> Message | None:
        """Return the next message, None at the end; `close_code` has the reason."""
        async with asyncio.timeout(PATIENCE):
            frame = await self._heard.get()
        if frame.type is aiohttp.WSMsgType.CLOSE:
            # The library overwrites its own attribute if its answer comes too late.
            self.close_code = int(frame.data)
        if frame.type is not aiohttp.WSMsgType.TEXT:
            # Later calls return the end again.
            self._heard.put_nowait(frame)
            return None
        message: Message = json.loads(frame.data)
        self.received.append(message)
        return message

    async def until(self, predicate: Callable[[Message], bool]) -> Message:
        """Read until a message matches."""
        while (message := await self.next()) is not None:
            if predicate(message):
                return message
        raise AssertionError(f"the connection ended ({self.close_code}); the last messages were {self.received[-5:]}")

    async def type(self, type_: str) -> Message:
        """Read until a message of a type; return its payload."""
        payload: Message = (await self.until(lambda m: m["type"] == type_))["payload"]
        return payload

    async def link(self, state: str) -> Message:
        """Read until the link to the sprite has a state."""
        return await self.until(lambda m: m["type"] == "link" and m["payload"]["state"] == state)

    async def reply(self, message_id: str) -> Message:
        """Return the answer to a message."""
        return await self.until(lambda m: m.get("reply_to") == message_id)

    async def ask(self, type_: str, payload: Message | None = None, message_id: str | None = None) -> Message:
        """Send a message and return its answer."""
        return await self.reply(await self.send(type_, payload, message_id))

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
        return await self.end_of(await self.send("mission", {"text": text}))

    async def closed(self) -> int | None:
        """Read to the end; return the close code."""
        while await self.next() is not None:
            pass
        return self.close_code


class Bridge:
    """A bridge that accepts connections. `address` is the login link that it prints."""

    def __init__(self, data: Path, address: str, stderr: Path) -> None:
        self.data = data
        self.address = address
        self.url = self.address.partition("/login")[0]
        self.stderr = stderr

    @property
    def workspace(self) -> Path:
        """Return the local person's workspace."""
        return self.data / "workspaces" / "local"

    @property
    def log(self) -> str:
        return self.stderr.read_text()

    @property
    def operator(self) -> dict[str, str]:
        """Return the header that opens `/metrics`."""
        return {"Authorization": f"Bearer {(self.data / 'run/operator-token').read_text().strip()}"}

    @asynccontextmanager
    async def http(self, **options: object) -> AsyncIterator[aiohttp.ClientSession]:
        """Return an HTTP session with this bridge; it follows no redirects and keeps cookies of 127.0.0.1."""
        jar = aiohttp.CookieJar(unsafe=True)
        timeout = aiohttp.ClientTimeout(total=PATIENCE)
        async with aiohttp.ClientSession(self.url, cookie_jar=jar, timeout=timeout, **options) as session:  # type: ignore[arg-type]
            yield session

    async def login(self, address: str | None = None) -> str:
        """Open a login link, by default the one printed at the start; return the resulting Cookie header."""
        async with self.http() as session, session.get(address or self.address, allow_redirects=False) as response:
            assert response.status == 303, await response.text()
            cookies = SimpleCookie(response.headers["Set-Cookie"])
            return "; ".join(f"{name}={morsel.value}" for name, morsel in cookies.items())

    @asynccontextmanager
    async def page(
        self,
        cookie: str | None = None,
        *,
        token: str | None = None,
        resume: Message | None = None,
        origin: str | None = None,
    ) -> AsyncIterator[PageClient]:
        """Open a WebSocket by cookie (as the bridge's own page) or Bearer token, and send `resume`."""
        headers: dict[str, str] = {"Authorization": f"Bearer {token}"} if token else {"Origin": origin or self.url}
        if cookie is not None:
            headers["Cookie"] = cookie
        async with (
            self.http() as session,
            session.ws_connect("/ws", headers=headers, max_msg_size=64 * 2**20) as websocket,
        ):
            client = PageClient(websocket)
            listening = asyncio.create_task(client.listen(), name="page")
            try:
                await client.send("resume", resume or {})
                yield client
            finally:
                listening.cancel()
                await asyncio.gather(listening, return_exceptions=True)

    async def run(self, *arguments: str, environment: Mapping[str, str] | None = None) -> tuple[int, str, str]:
        """Run `bridge ARGUMENTS --data` on this folder; return exit status, stdout and stderr."""
        return await run_bridge(*arguments, "--data", str(self.data), environment=environment)


class BridgeServer(Bridge):
    """A bridge in the event loop of a separate thread; its sprites run in threads, too."""

    def __init__(self, data: Path, server: InThread[str], address: str, stderr: Path) -> None:
        super().__init__(data, address, stderr)
        self._server = server

    def cancel_task(self, name: str) -> None:
        """Cancel a task of the bridge from outside."""
        self._server.cancel_task(name)

    async def stop(self) -> None:
        """Stop in order, as SIGTERM does; raise the bridge's error."""
        await self._server.stop()

    def hanging(self) -> AbstractContextManager[None]:
        """Block the bridge's event loop while the block runs."""
        return self._server.hanging()

    async def ended(self) -> None:
        """Wait for an unrequested end; raise the bridge's error."""
        async with asyncio.timeout(PATIENCE):
            await asyncio.shield(asyncio.wrap_future(self._server.ended))


class BridgeProcess(Bridge, RunningProcess):
    """`python -m bridge serve` on a data folder; its greeting is the first printed line."""

    def __init__(self, data: Path, process: Process, greeting: str, stderr: Path) -> None:
        Bridge.__init__(self, data, greeting.removeprefix("bridge listening on ").strip(), stderr)
        RunningProcess.__init__(self, process)


async def run_bridge(*arguments: str, environment: Mapping[str, str] | None = None) -> tuple[int, str, str]:
    """Run `bridge ARGUMENTS` to its end in a thread of this process; return exit status, stdout and stderr.

    `serve` handles signals and so needs a main thread: it is forked.
    """
    if arguments[0] == "serve":
        return await run_bridge_process(*arguments, environment=environment)
    variables = bridge_environment() if environment is None else environment
    return await call_main(bridge_command, list(arguments), variables)


async def run_bridge_process(*arguments: str, environment: Mapping[str, str] | None = None) -> tuple[int, str, str]:
    """Run `python -m bridge ARGUMENTS` to its end, as a forked process."""
    process = await fork_module(
        "bridge",
        *arguments,
        env=bridge_environment() if environment is None else environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(PATIENCE):
            out, err = await process.communicate()
    finally:
        process.kill()
    return process.returncode or 0, out.decode(), err.decode()


def _prepared(data: Path, arguments: Sequence[str], environment: Mapping[str, str]) -> tuple[list[str], dict[str, str]]:
    """Return the flags and variables of a bridge whose agents act without asking, unless flags say otherwise."""
    home = home_beside(data)
    if "--permissions" not in arguments:
        arguments = (*arguments, "--permissions", "bypass")
    # A test file makes more calls than a person does in a day.
    defaults = {"HOME": str(home), "IS_SANDBOX": "1", "SPRITE_DAILY_USD": "none"}
    if "ask" in arguments:
        # Without a sandbox the agent asks about everything.
        defaults["SPRITE_SANDBOX"] = "off"
    variables = bridge_environment(**{**defaults, **environment})
    return ["--data", str(data), *arguments], variables


@asynccontextmanager
async def running_bridge(
    data: Path,
    *arguments: str,
    host: str = "127.0.0.1",
    port: int = 0,
    start_sprite: StartSprite = start_in_thread,
    **environment: str,
) -> AsyncIterator[BridgeServer]:
    """Run a bridge in a thread of this process; stop it in order at the end.

    `arguments` are additional flags, `environment` additional variables. Its log goes to `data/../bridge-stderr.log`,
    and the sprites' home is beside it. Its sprites run in threads, too, unless `start_sprite` is Child.start.
    """
    flags, variables = _prepared(data, arguments, environment)

    async def main(listens: Callable[[str], None], stop: asyncio.Event) -> None:
        parser = argparse.ArgumentParser()
        serve.add_arguments(parser)
        settings = serve.settings_of(parser.parse_args(["--host", host, "--port", str(port), *flags]))
        async with running(settings, stop.set, start_sprite=start_sprite) as bridge:
            logging.getLogger("bridge.commands.serve").info("listening on %s", bridge.url)
            listens(bridge.address)
            await stop.wait()

    stderr = data.parent / "bridge-stderr.log"
    log = log_file(stderr, JsonLines())
    async with in_thread("bridge", main, log, variables) as (server, address):
        yield BridgeServer(data, server, address, stderr)


@asynccontextmanager
async def bridge_process(
    data: Path,
    *arguments: str,
    host: str = "127.0.0.1",
    port: int = 0,
    program: Sequence[str] = ("bridge",),
    forks_sprites: bool = False,
    **environment: str,
) -> AsyncIterator[BridgeProcess]:
    """Run a bridge process that accepts connections; stop it at the end, or kill it if necessary.

    With `forks_sprites`, its sprites are forked as well: they are not its descendants, but end with it. `program` is
    the module that `python -m` runs: the bridge itself, or a wrapper. The variable TESTS_OPEN_FILES limits its
    descriptors.
    """
    flags, variables = _prepared(data, arguments, environment)
    if forks_sprites:
        variables[PYTHON] = await asyncio.to_thread(forking_python)
    stderr = data.parent / "bridge-stderr.log"
    with stderr.open("ab") as log:
        process = await start_module(
            program[0], *program[1:], "serve", "--host", host, "--port", str(port), *flags, env=variables, stderr=log
        )
    async with listening(process, data, stderr) as bridge:
        yield bridge


@asynccontextmanager
async def listening(process: Process, data: Path, stderr: Path) -> AsyncIterator[BridgeProcess]:
    """Wait until a started bridge accepts connections; stop it at the end, or kill it if necessary."""
    try:
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            line = (await process.stdout.readline()).decode()
        assert line.startswith("bridge listening on "), stderr.read_text()[-3000:]
        bridge = BridgeProcess(data, process, line, stderr)
        yield bridge
        await bridge.stop()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
