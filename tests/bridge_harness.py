"""What the bridge's tests share: a real `python -m bridge serve`, and a client of its WebSocket."""

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
from bridge.telemetry.logs import JsonLines, LibrariesSeldom
from tests.forking import PYTHON, fork_module, forking_python
from tests.harness import PATIENCE, Message, Process, RunningProcess, home_beside, start_in_thread, start_module
from tests.in_thread import InThread, call_main, in_thread, log_file

#: What a person or a `make test` around this one has set is none of the tests'.
_PRIVATE = ("ANTHROPIC_", "SPRITE", "BRIDGE_", "CLAUDE", "IS_SANDBOX", "XDG_CONFIG", "MAKE", "MFLAGS")


def bridge_environment(**extra: str) -> dict[str, str]:
    """No key (the offline model answers), no proxy in between, and agents that retry nothing for long."""
    keep = {name: value for name, value in os.environ.items() if not name.startswith(_PRIVATE)}
    return {**keep, "CLAUDE_CODE_MAX_RETRIES": "0", "PYTHONUNBUFFERED": "1", "SPRITE_PREWARM_SECONDS": "0"} | extra


class PageClient:
    """A WebSocket of the bridge's, as a page or a terminal holds it; keeps everything it has received."""

    def __init__(self, websocket: aiohttp.ClientWebSocketResponse) -> None:
        self.websocket = websocket
        self.received: list[Message] = []
        #: What the bridge closed it with, once it has.
        self.close_code: int | None = None
        self._heard: asyncio.Queue[aiohttp.WSMessage] = asyncio.Queue()

    async def listen(self) -> None:
        """Reads until the end whether or not anybody wants to know: a page answers its bridge's pings."""
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
        """The next message, None at the end; `close_code` says how it ended."""
        async with asyncio.timeout(PATIENCE):
            frame = await self._heard.get()
        if frame.type is aiohttp.WSMsgType.CLOSE:
            # The library overwrites its own attribute where its answer comes too late.
            self.close_code = int(frame.data)
        if frame.type is not aiohttp.WSMsgType.TEXT:
            # Whoever asks again hears it again.
            self._heard.put_nowait(frame)
            return None
        message: Message = json.loads(frame.data)
        self.received.append(message)
        return message

    async def until(self, predicate: Callable[[Message], bool]) -> Message:
        """Reads until a message fits."""
        while (message := await self.next()) is not None:
            if predicate(message):
                return message
        raise AssertionError(f"the connection ended ({self.close_code}); the last messages were {self.received[-5:]}")

    async def type(self, type_: str) -> Message:
        """Reads until a message of a type, and returns its payload."""
        payload: Message = (await self.until(lambda m: m["type"] == type_))["payload"]
        return payload

    async def link(self, state: str) -> Message:
        """Reads until the link to the sprite is in a state."""
        return await self.until(lambda m: m["type"] == "link" and m["payload"]["state"] == state)

    async def reply(self, message_id: str) -> Message:
        """The answer to a message."""
        return await self.until(lambda m: m.get("reply_to") == message_id)

    async def ask(self, type_: str, payload: Message | None = None, message_id: str | None = None) -> Message:
        """Sends a message and returns its answer."""
        return await self.reply(await self.send(type_, payload, message_id))

    async def end_of(self, mission_id: str) -> Message:
        """The event that ends a mission, as its payload."""
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
        """Sends a mission and waits for its end."""
        return await self.end_of(await self.send("mission", {"text": text}))

    async def closed(self) -> int | None:
        """Reads to the end; the close code."""
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
        """The local person's."""
        return self.data / "workspaces" / "local"

    @property
    def log(self) -> str:
        return self.stderr.read_text()

    @asynccontextmanager
    async def http(self, **options: object) -> AsyncIterator[aiohttp.ClientSession]:
        """A session with this bridge that follows no redirects by itself and keeps cookies of 127.0.0.1."""
        jar = aiohttp.CookieJar(unsafe=True)
        timeout = aiohttp.ClientTimeout(total=PATIENCE)
        async with aiohttp.ClientSession(self.url, cookie_jar=jar, timeout=timeout, **options) as session:  # type: ignore[arg-type]
            yield session

    async def login(self, address: str | None = None) -> str:
        """Opens a login link, by default the one printed at the start; the Cookie header it leads to."""
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
        """A WebSocket by cookie (as a page of the bridge's own) or Bearer token, its `resume` sent."""
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
        """`bridge ARGUMENTS --data` this folder: exit status, stdout, stderr."""
        return await run_bridge(*arguments, "--data", str(self.data), environment=environment)


class BridgeServer(Bridge):
    """A bridge in an event loop of its own thread; the sprites that it starts have threads, too."""

    def __init__(self, data: Path, server: InThread[str], address: str, stderr: Path) -> None:
        super().__init__(data, address, stderr)
        self._server = server

    def cancel_task(self, name: str) -> None:
        """Cancel a task of the bridge's from outside."""
        self._server.cancel_task(name)

    async def stop(self) -> None:
        """Stop in order, as SIGTERM does; raise what the bridge raised."""
        await self._server.stop()

    def hanging(self) -> AbstractContextManager[None]:
        """Block the bridge's event loop while the block runs."""
        return self._server.hanging()

    async def ended(self) -> None:
        """Wait for an end that nobody asked for; raise what the bridge raised."""
        async with asyncio.timeout(PATIENCE):
            await asyncio.shield(asyncio.wrap_future(self._server.ended))


class BridgeProcess(Bridge, RunningProcess):
    """`python -m bridge serve` on a data folder; its greeting is the first line it printed."""

    def __init__(self, data: Path, process: Process, greeting: str, stderr: Path) -> None:
        Bridge.__init__(self, data, greeting.removeprefix("bridge listening on ").strip(), stderr)
        RunningProcess.__init__(self, process)


async def run_bridge(*arguments: str, environment: Mapping[str, str] | None = None) -> tuple[int, str, str]:
    """`bridge ARGUMENTS` to its end, in a thread of this process: exit status, stdout, stderr.

    `serve` needs a main thread, since it handles signals: it is forked.
    """
    if arguments[0] == "serve":
        return await run_bridge_process(*arguments, environment=environment)
    variables = bridge_environment() if environment is None else environment
    return await call_main(bridge_command, list(arguments), variables)


async def run_bridge_process(*arguments: str, environment: Mapping[str, str] | None = None) -> tuple[int, str, str]:
    """`python -m bridge ARGUMENTS` to its end, as a forked process."""
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
    """The flags and variables of a bridge whose agents act without asking, unless flags say otherwise."""
    home = home_beside(data)
    if "--permissions" not in arguments:
        arguments = (*arguments, "--permissions", "bypass")
    # The calls of a whole file's tests are no day's work of a person's.
    defaults = {"HOME": str(home), "IS_SANDBOX": "1", "SPRITE_DAILY_USD": "none"}
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
    """A bridge in a thread of this process; stopped in order at the end.

    `arguments` are further flags, `environment` further variables. What it logs goes to `data/../bridge-stderr.log`,
    the sprites' home is beside it. Its sprites have threads, too, unless `start_sprite` is Child.start.
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
    log = log_file(stderr, JsonLines(), LibrariesSeldom())
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
    """A bridge process that accepts connections; stopped, or killed if need be, at the end.

    With `forks_sprites` the sprites that it starts are forked as well: no descendants of its, but they end with it.
    `program` is what `python -m` runs: the bridge itself, or what runs it in a test's way.
    The variable TESTS_OPEN_FILES limits its descriptors.
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
    """A bridge that was started, once it accepts connections; stopped, or killed if need be, at the end."""
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
