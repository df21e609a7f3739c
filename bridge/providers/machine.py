"""One VM through the official SDK: API calls with retries, timeouts and readable errors, and the byte stream into it.

This module knows the Sprites API and nothing of the software on the VM. The organisation's token stays here.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, TypeVar
from urllib.parse import quote, urlencode

import aiohttp
import httpx
import sprites
import websockets
from sprites.services import ServiceStream
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as dial

from bridge.providers.errors import fault_of, is_full_disk, sentence, status_fault
from bridge.providers.provider import HostError
from bridge.providers.vm_scripts import Output, last_lines
from sprite.common.tasks import TaskSet, backoff

#: Queued bytes above which `drain` waits.
_HIGH_WATER_BYTES = 256 * 1024
_CUT = "The connection to the VM was cut."


class ProxyChannel:
    """A Channel over an open proxy connection."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        #: Written bytes that wait for the sender, which runs while there are any.
        self._waiting = bytearray()
        self._sending: asyncio.Task[None] | None = None
        self._error: OSError | None = None
        self._tasks = TaskSet()

    async def read(self) -> bytes:
        """See Channel."""
        try:
            frame = await self._socket.recv(decode=False)
        except websockets.ConnectionClosedOK:
            return b""
        except websockets.ConnectionClosed as error:
            raise ConnectionResetError(_CUT) from error
        # An empty frame is not the end.
        return frame or await self.read()

    def write(self, data: bytes) -> None:
        """See Channel."""
        self._waiting += data
        if self._sending is None or self._sending.done():
            self._sending = self._tasks.start(self._send(), "proxy-sender")

    async def drain(self) -> None:
        """See Channel."""
        if len(self._waiting) > _HIGH_WATER_BYTES and self._sending is not None:
            await asyncio.wait({self._sending})
        if self._error is not None:
            raise self._error

    async def close(self) -> None:
        """See Channel. Queued bytes are still sent, if the connection accepts them."""
        if self._sending is not None:
            await asyncio.wait({self._sending}, timeout=_CLOSE_SECONDS / 2)
        await self._tasks.close()
        await self._socket.close()

    async def _send(self) -> None:
        try:
            while self._waiting and self._error is None:
                # Small writes are joined into few frames.
                data, self._waiting = bytes(self._waiting), bytearray()
                await self._socket.send(data)
        except websockets.ConnectionClosed as error:
            self._error = ConnectionResetError(_CUT)
            self._error.__cause__ = error


_T = TypeVar("_T")
Status = Literal["running", "warm", "cold", "absent"]

#: Default timeout of a call; calls that take longer have their own.
CALL_SECONDS = 30.0
_CONNECT_SECONDS = 20.0
#: A large file reaches the VM's disk some time after its last byte was sent.
_UPLOAD_SECONDS = 120.0
#: A sprite stops within a minute by itself: it interrupts its turn, stores it and flushes.
_STOP_SECONDS = 65.0
#: Time for which a new service is watched for an early end.
_WATCH_SECONDS = 3.0
#: Retries of a busy API; after these, users get an error.
_ATTEMPTS = 5
_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 20.0
_PATIENCE_SECONDS = 90.0
_MAX_FRAME_BYTES = 16 * 1024 * 1024
#: A silent disconnect (a frozen VM) is noticed within twice this time.
_PING_SECONDS = 10.0
_CLOSE_SECONDS = 2.0

#: A command without output for this long has stopped.
_SILENT_SECONDS = 120.0
_FULL = "The VM's disk is full. "
_STDOUT, _STDERR = b"\x01", b"\x02"
_KEPT_BYTES = 8000
_OK, _NOT_FOUND, _TAKEN = 200, 404, frozenset({400, 409})
_CHUNK_BYTES = 1 << 16


class CommandError(HostError):
    """A command on the VM failed; the message has its last lines."""


class Machine:
    """The VM of one name, whether it exists or not. Each method makes API calls with timeouts and retries.

    `check` is called before each call that may change something; an error that it raises ends the method.
    """

    def __init__(self, client: sprites.AsyncSpritesClient, name: str, check: Callable[[], None]) -> None:
        self.name = name
        self._check = check
        self._client = client
        self._sprite = client.sprite(name)

    # --- the VM ---

    async def status(self) -> Status:
        """Return the VM's status without waking it."""

        async def ask() -> Status:
            try:
                found = (await self._client.get_sprite(self.name)).status
            except sprites.NotFoundError:
                return "absent"
            return "running" if found == "running" else "warm" if found == "warm" else "cold"

        return await self._call("asking for the VM", ask)

    async def create(self) -> None:
        """Create the VM. An existing one is fine: an answer may have been lost, or another bridge created it."""
        try:
            await self._call("creating the VM", lambda: self._client.create_sprite(self.name), seconds=120.0)
        except _StatusError as error:
            if error.status not in _TAKEN or await self.status() == "absent":
                raise

    async def restrict(self, allowed: Sequence[str]) -> None:
        """Allow the VM to reach only these domains; an empty list allows all of the internet."""
        rules = [sprites.PolicyRule(domain=domain, action="allow") for domain in allowed]
        # An empty list allows everything; with rules, the last one denies the rest.
        policy = sprites.NetworkPolicy([*rules, sprites.PolicyRule(domain="*", action="deny")] if rules else [])
        await self._call("setting the network policy", lambda: self._sprite.update_network_policy(policy))

    # --- files ---

    async def write(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        """Write a file and create its parent folders."""
        file = self._sprite.filesystem() / path
        await self._call(f"writing {path}", lambda: file.write_bytes(data, mode=mode))

    async def stream(self, path: str) -> AsyncIterator[bytes]:
        """Yield a file's bytes. Raise FileNotFoundError. Streams, because the SDK would hold the file in memory."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS, sock_read=CALL_SECONDS)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout, headers=self._headers) as session,
                session.get(self._address("fs/read"), params={"path": path, "workingDir": "/"}) as response,
            ):
                if response.status == _NOT_FOUND:
                    raise FileNotFoundError(path)
                if response.status != _OK:
                    raise HostError(f"The file cannot be read ({response.status}).")
                async for chunk in response.content.iter_chunked(_CHUNK_BYTES):
                    yield chunk
        except (aiohttp.ClientError, TimeoutError) as error:
            raise HostError("The VM's file cannot be read at the moment.") from error

    async def upload(self, path: str, source: Path, *, mode: int = 0o600) -> None:
        """Write a file of any size and create its parent folders. Streams: the SDK would hold it in memory."""
        self._check()
        query = {"path": path, "workingDir": "/", "mode": f"{mode:04o}", "mkdirParents": "true"}
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS, sock_read=_UPLOAD_SECONDS)
        try:
            with source.open("rb") as file:
                async with (
                    aiohttp.ClientSession(timeout=timeout, headers=self._headers) as session,
                    session.put(self._address("fs/write"), params=query, data=file) as response,
                ):
                    if response.status != _OK:
                        said = (await response.content.read(_KEPT_BYTES)).decode(errors="replace")
                        fault = status_fault(response.status, said, f"writing {path}")
                        raise _StatusError(fault.message, fault.status, retryable=fault.retryable)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise HostError(f"{sentence(f'writing {path}')} was cut off: the VM stopped answering.") from error

    def _address(self, rest: str) -> str:
        return f"{self._client.base_url}/v1/sprites/{quote(self.name, safe='')}/{rest}"

    @property
    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._client.token}"}

    # --- processes ---

    async def run(self, script: str, what: str, *, seconds: float, tell: Callable[[str], None] | None = None) -> bytes:
        """Run a shell script and return its output. Raise CommandError with its last lines.

        `tell` gets each line. The script is part of a URL, so it holds no secrets. It may run twice.
        """

        async def run() -> bytes:
            output, errors = Output(tell), Output(tell)
            try:
                await self._sprite.command("/bin/sh", "-c", script, stdout=output, stderr=errors).run()
            except sprites.NetworkError:
                if output.is_too_much or errors.is_too_much:
                    raise CommandError("The VM sent more output than expected.") from None
                raise
            except sprites.ExecError as error:
                said = last_lines((output.getvalue() + errors.getvalue()).decode(errors="replace"))
                is_full = is_full_disk(said)
                message = f"{_FULL if is_full else ''}{sentence(what)} failed. It said:\n{said}"
                raise CommandError(message, retryable=not is_full) from error
            return output.getvalue()

        return await self._call(what, run, seconds=seconds)

    async def output(self, script: str, what: str) -> AsyncIterator[bytes]:
        """Yield the stdout of a shell script, of any length. Raise CommandError if the script fails.

        It is not retried: the caller already has a part. Streams, because the SDK would hold the output in memory.
        """
        query = urlencode([("cmd", "/bin/sh"), ("cmd", "-c"), ("cmd", script), ("path", "/bin/sh"), ("stdin", "true")])
        errors, code = b"", None
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                socket = await self._dial(f"exec?{query}")
            async with socket:
                while code is None:
                    async with asyncio.timeout(_SILENT_SECONDS):
                        frame = await socket.recv()
                    if isinstance(frame, bytes) and frame[:1] == _STDOUT:
                        yield frame[1:]
                    elif isinstance(frame, bytes) and frame[:1] == _STDERR:
                        errors = (errors + frame[1:])[-_KEPT_BYTES:]
                    elif _is_exit(frame):
                        code = frame[1] if isinstance(frame, bytes) else int(json.loads(frame).get("exit_code", 0))
        except (OSError, TimeoutError, websockets.WebSocketException, ValueError, IndexError) as error:
            raise HostError(f"{sentence(what)} was cut off: the VM stopped answering.") from error
        if code:
            raise CommandError(f"{sentence(what)} failed. It said:\n{last_lines(errors.decode(errors='replace'))}")

    async def detach(self, script: str) -> None:
        """Start a process that outlives this connection, for VMs without services."""
        query = [("cmd", "/bin/sh"), ("cmd", "-c"), ("cmd", script), ("path", "/bin/sh")]
        query += [("stdin", "true"), ("max_run_after_disconnect", "0")]

        async def start() -> None:
            async with self._dial(f"exec?{urlencode(query)}") as socket:
                # Wait for an early exit; a process that is silent for a while runs on.
                with suppress(TimeoutError):
                    async with asyncio.timeout(_WATCH_SECONDS):
                        async for frame in socket:
                            if _is_exit(frame):
                                raise CommandError("The sprite's process ended at once.")

        await self._call("starting the process", start)

    # --- services ---

    async def serve(self, name: str, command: Sequence[str], directory: str) -> None:
        """Define a service and start it. Raise CommandError with its last lines if it ends at once."""
        defined = await self._service(
            f"starting the service {name}",
            lambda: self._sprite.create_service(
                name, command[0], list(command[1:]), dir=directory, duration=_WATCH_SECONDS
            ),
        )
        # Repeating an existing definition starts nothing.
        if not any(event.type == "started" for event in defined) and not await self.start(name):
            raise HostError("The VM did not keep the service.")

    async def start(self, name: str) -> bool:
        """Start a service unless it runs; return whether there is one. Raise CommandError if it ends at once."""
        try:
            await self._service(
                f"starting the service {name}", lambda: self._sprite.start_service(name, duration=_WATCH_SECONDS)
            )
        except _StatusError as error:
            if error.status not in {_NOT_FOUND, *_TAKEN}:
                raise
            return error.status != _NOT_FOUND
        return True

    async def stop(self, name: str) -> None:
        """Stop a service gracefully; one that is stopped or missing is fine."""
        try:
            await self._call(
                f"stopping the service {name}",
                lambda: self._sprite.stop_service(name, timeout=_STOP_SECONDS),
                seconds=_STOP_SECONDS + CALL_SECONDS,
            )
        except _StatusError as error:
            if error.status not in {_NOT_FOUND, *_TAKEN}:
                raise

    async def _service(self, what: str, call: Callable[[], Awaitable[ServiceStream]]) -> list[sprites.ServiceLogEvent]:
        events = list(await self._call(what, call, seconds=_WATCH_SECONDS + CALL_SECONDS))
        ends = [event for event in events if event.type in {"exit", "error"}]
        if ends:
            said = "".join(event.data or "" for event in events if event.type in {"stdout", "stderr", "error"})
            code = "" if ends[-1].exit_code is None else f" (with {ends[-1].exit_code})"
            raise CommandError(f"The sprite ended as soon as it was started{code}. It said:\n{last_lines(said)}")
        return events

    # --- the stream into it ---

    async def connect(self, port: int) -> ProxyChannel:
        """Open a byte stream to a TCP port of the VM, waking it. Raise HostError if nothing listens there."""
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                socket = await self._dial("proxy")
                try:
                    await socket.send(json.dumps({"host": "localhost", "port": port}))
                    answer = await socket.recv()
                    if not isinstance(answer, str) or json.loads(answer).get("status") != "connected":
                        raise HostError("No sprite listens on the VM yet.")  # noqa: TRY301 - the socket is closed below
                except BaseException:
                    await socket.close()
                    raise
        except websockets.InvalidStatus as error:
            raise HostError(f"The VM cannot be reached ({error.response.status_code}).") from error
        except (OSError, TimeoutError, websockets.WebSocketException, ValueError, AttributeError) as error:
            raise HostError("The VM cannot be reached at the moment.") from error
        return ProxyChannel(socket)

    def _dial(self, rest: str) -> dial:
        return dial(
            re.sub(r"^http", "ws", self._address(rest)),
            additional_headers=self._headers,
            # An outbound proxy is meant for browsers, and it would be used even for loopback.
            proxy=None,
            compression=None,
            open_timeout=_CONNECT_SECONDS,
            ping_interval=_PING_SECONDS,
            ping_timeout=_PING_SECONDS,
            close_timeout=_CLOSE_SECONDS,
            max_size=_MAX_FRAME_BYTES,
        )

    # --- calls ---

    async def _call(self, what: str, call: Callable[[], Awaitable[_T]], *, seconds: float | None = None) -> _T:
        """Make one API call; retry while the API is busy or unreachable. Raise HostError if that lasts."""
        seconds = seconds or CALL_SECONDS
        began = asyncio.get_running_loop().time()
        for attempt in range(1, _ATTEMPTS + 1):
            self._check()
            try:
                async with asyncio.timeout(seconds):
                    return await call()
            except HostError:
                raise
            except (
                sprites.SpriteError,
                httpx.HTTPError,
                websockets.WebSocketException,
                OSError,
                TimeoutError,
            ) as error:
                fault = fault_of(error, what, seconds)
                pause = fault.after or backoff(attempt, _FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
                lasted = asyncio.get_running_loop().time() - began
                if not fault.again or attempt == _ATTEMPTS or lasted + pause > _PATIENCE_SECONDS:
                    raise _StatusError(fault.message, fault.status, retryable=fault.retryable) from error
            await asyncio.sleep(pause)
        raise AssertionError(what)


class _StatusError(HostError):
    """An error response of the Sprites API; `status` is its HTTP status, if it had one."""

    def __init__(self, message: str, status: int | None, *, retryable: bool) -> None:
        super().__init__(message, retryable=retryable)
        self.status = status


def _is_exit(frame: str | bytes) -> bool:
    return frame[:1] == b"\x03" if isinstance(frame, bytes) else '"exit"' in frame
