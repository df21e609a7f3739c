"""One VM, through the official SDK: its calls with retries, bounds and errors in words; and the stream into it.

Knows the Sprites API and nothing of what is installed on the VM. The organisation's token stays here.
"""

from __future__ import annotations

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
from websockets.asyncio.client import connect as dial

from bridge.hosts.faults import fault_of, sentence, status_fault
from bridge.hosts.host import HostError
from bridge.hosts.output import Output, last_lines
from bridge.hosts.proxy import ProxyChannel
from sprite.common.retry import backoff

_T = TypeVar("_T")
Status = Literal["running", "warm", "cold", "absent"]

#: One call's bound; what is known to take longer has one of its own.
CALL_SECONDS = 30.0
_CONNECT_SECONDS = 20.0
_CHECKPOINT_SECONDS = 120.0
#: A large file is on the VM's disk some time after its last byte was sent.
_UPLOAD_SECONDS = 120.0
#: A sprite stops within a minute by itself: it interrupts its turn, stores it and flushes.
_STOP_SECONDS = 65.0
#: How long a new service is watched for an early end.
_WATCH_SECONDS = 3.0
#: A busy API is asked again, this often and this long; above that people are told.
_ATTEMPTS = 5
_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 20.0
_PATIENCE_SECONDS = 90.0
#: What the API and the way to it may raise; anything else is a fault of ours.
_PASSING = (sprites.SpriteError, httpx.HTTPError, websockets.WebSocketException, OSError, TimeoutError)
_MAX_FRAME_BYTES = 16 * 1024 * 1024
#: A silent cut (a frozen VM) is noticed within twice this.
_PING_SECONDS = 10.0
_CLOSE_SECONDS = 2.0

#: A command that says nothing for so long has stopped.
_SILENT_SECONDS = 120.0
_STDOUT, _STDERR = b"\x01", b"\x02"
_KEPT_BYTES = 8000
_OK, _NOT_FOUND, _TAKEN = 200, 404, frozenset({400, 409})
_CHUNK_BYTES = 1 << 16


class CommandError(HostError):
    """A command on the VM ended with an error; the words hold its last lines."""

    shows_life = True


class NotThereError(HostError):
    """There is no such service on the VM."""


class Machine:
    """The VM of one name, whether it exists or not. Each method is at least one API call, bounded and retried.

    `check` is called before each of those that may change something; what it raises ends the method.
    """

    def __init__(
        self,
        client: sprites.AsyncSpritesClient,
        name: str,
        *,
        call_seconds: float = CALL_SECONDS,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        self.name = name
        self._check = check
        self._call_seconds = call_seconds
        self._client = client
        self._sprite = client.sprite(name)

    # --- the VM ---

    async def status(self) -> Status:
        """How it is; wakes nothing."""

        async def ask() -> Status:
            try:
                found = (await self._client.get_sprite(self.name)).status
            except sprites.NotFoundError:
                return "absent"
            return "running" if found == "running" else "warm" if found == "warm" else "cold"

        return await self._call("asking for the VM", ask)

    async def create(self) -> None:
        """Creates it. One that exists already (an answer that was lost, another bridge) is as good."""
        try:
            await self._call("creating the VM", lambda: self._client.create_sprite(self.name), seconds=120.0)
        except _StatusError as error:
            if error.status not in _TAKEN or await self.status() == "absent":
                raise

    async def destroy(self) -> None:
        """Ends it, and all that is on it, for good; one that is gone is as good."""
        try:
            await self._call("destroying the VM", lambda: self._client.delete_sprite(self.name), seconds=120.0)
        except _StatusError as error:
            if error.status != _NOT_FOUND:
                raise

    async def restrict(self, allowed: Sequence[str]) -> None:
        """Lets it reach these domains and no others; none named, all of the internet."""
        rules = [sprites.PolicyRule(domain=domain, action="allow") for domain in allowed]
        # An empty list means everything; the last rule makes any other mean nothing else.
        policy = sprites.NetworkPolicy([*rules, sprites.PolicyRule(domain="*", action="deny")] if rules else [])
        await self._call("setting the network policy", lambda: self._sprite.update_network_policy(policy))

    async def checkpoint(self, comment: str) -> None:
        """Keeps the whole VM as it is now."""
        stream = await self._call(
            "making a checkpoint",
            lambda: self._sprite.create_checkpoint(comment, timeout=_CHECKPOINT_SECONDS),
            seconds=_CHECKPOINT_SECONDS,
        )
        errors = [message.error for message in stream if message.type == "error"]
        if errors:
            raise HostError(f"The checkpoint could not be made: {errors[-1]}")

    # --- files ---

    async def write(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        """Writes a file, and the folders above it."""
        await self._call(f"writing {path}", lambda: self._path(path).write_bytes(data, mode=mode))

    async def stream(self, path: str) -> AsyncIterator[bytes]:
        """A file's bytes as they come; FileNotFoundError if there is none. The SDK would keep it whole in memory."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_CONNECT_SECONDS, sock_read=self._call_seconds)
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
        """Writes a file of any size, and the folders above it. The SDK would keep it whole in memory."""
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

    def _path(self, path: str) -> sprites.AsyncSpritePath:
        return self._sprite.filesystem() / path

    # --- processes ---

    async def run(self, script: str, what: str, *, seconds: float, tell: Callable[[str], None] | None = None) -> bytes:
        """Runs a shell script; its output. CommandError with its last lines. `tell` hears each line as it comes.

        The script's text travels in an address: no secrets in it. It may run twice, so it must not mind.
        """

        async def run() -> bytes:
            output, errors = Output(tell), Output(tell)
            try:
                await self._sprite.command("/bin/sh", "-c", script, stdout=output, stderr=errors).run()
            except sprites.NetworkError:
                if output.is_too_much or errors.is_too_much:
                    raise CommandError("The VM says far more than was asked for.") from None
                raise
            except sprites.ExecError as error:
                said = last_lines((output.getvalue() + errors.getvalue()).decode(errors="replace"))
                raise CommandError(f"{sentence(what)} failed. It said:\n{said}") from error
            return output.getvalue()

        return await self._call(what, run, seconds=seconds)

    async def output(self, script: str, what: str) -> AsyncIterator[bytes]:
        """What a shell script writes to stdout, as it comes and however much; CommandError if it ends with an error.

        Not tried again: who reads it has had a part already. The SDK would keep it whole in memory.
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
        """Starts a process that outlives this connection, for where services are not to be had."""
        query = [("cmd", "/bin/sh"), ("cmd", "-c"), ("cmd", script), ("path", "/bin/sh")]
        query += [("stdin", "true"), ("max_run_after_disconnect", "0")]

        async def start() -> None:
            async with self._dial(f"exec?{urlencode(query)}") as socket:
                # Its first words, or a while without: then it runs by itself.
                with suppress(TimeoutError):
                    async with asyncio.timeout(_WATCH_SECONDS):
                        async for frame in socket:
                            if _is_exit(frame):
                                raise CommandError("The sprite's process ended at once.")

        await self._call("starting the process", start)

    # --- services ---

    async def serve(self, name: str, command: Sequence[str], directory: str) -> None:
        """Defines the service and sees it running; CommandError if it ends at once, with its last lines."""
        defined = await self._service(
            f"starting the service {name}",
            lambda: self._sprite.create_service(
                name, command[0], list(command[1:]), dir=directory, duration=_WATCH_SECONDS
            ),
        )
        if not any(event.type == "started" for event in defined):
            # A definition that was there before starts nothing.
            await self.start(name)

    async def start(self, name: str) -> None:
        """Starts a service, if it does not run; CommandError if it ends at once, NotThereError if there is none."""
        with suppress(_ConflictError):
            await self._service(
                f"starting the service {name}", lambda: self._sprite.start_service(name, duration=_WATCH_SECONDS)
            )

    async def stop(self, name: str) -> None:
        """Stops a service and lets it end well; one that does not run, or does not exist, is as good."""
        try:
            await self._call(
                f"stopping the service {name}",
                lambda: self._sprite.stop_service(name, timeout=_STOP_SECONDS),
                seconds=_STOP_SECONDS + self._call_seconds,
            )
        except _StatusError as error:
            if error.status not in {_NOT_FOUND, *_TAKEN}:
                raise

    async def _service(self, what: str, call: Callable[[], Awaitable[ServiceStream]]) -> list[sprites.ServiceLogEvent]:
        try:
            events = list(await self._call(what, call, seconds=_WATCH_SECONDS + self._call_seconds))
        except _StatusError as error:
            if error.status == _NOT_FOUND:
                raise NotThereError(str(error)) from error
            raise _ConflictError(str(error)) if error.status in _TAKEN else error from error
        ends = [event for event in events if event.type in {"exit", "error"}]
        if ends:
            said = "".join(event.data or "" for event in events if event.type in {"stdout", "stderr", "error"})
            code = "" if ends[-1].exit_code is None else f" (with {ends[-1].exit_code})"
            raise CommandError(f"The sprite ended as soon as it was started{code}. It said:\n{last_lines(said)}")
        return events

    # --- the stream into it ---

    async def connect(self, port: int) -> ProxyChannel:
        """A byte stream to a TCP port of the VM; a sleeping VM wakes. HostError if nothing listens there."""
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                socket = await self._dial("proxy")
                try:
                    await socket.send(json.dumps({"host": "localhost", "port": port}))
                    answer = await socket.recv()
                    if not isinstance(answer, str) or json.loads(answer).get("status") != "connected":
                        raise HostError("Nobody listens on the VM yet.")  # noqa: TRY301 - the socket is closed below
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
            # A proxy on the way out is for browsers; and it would be asked even for loopback.
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
        """Makes one call, again while the API is busy or out of reach; HostError once that lasts."""
        seconds = seconds or self._call_seconds
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
    """An answer of the API that is an error; `status` is its HTTP status where it had one."""

    def __init__(self, message: str, status: int | None, *, retryable: bool) -> None:
        super().__init__(message, retryable=retryable)
        self.status = status


class _ConflictError(HostError):
    """What was asked of a service is so already."""


def _is_exit(frame: str | bytes) -> bool:
    return frame[:1] == b"\x03" if isinstance(frame, bytes) else '"exit"' in frame
