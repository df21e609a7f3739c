"""The emulated API: its addresses, bodies, status codes and error shapes, as the official SDKs expect them.

Everything that is asked is written down in `calls`; `faults` make it busy, slow, broken or cut off on demand.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from tests.emulator import files
from tests.emulator.exec import run_command
from tests.emulator.guest import guest_api
from tests.emulator.machine import Machine, Service, no_sockets
from tests.emulator.proxy import run_proxy

TOKEN = "planted-sprites-token"
CREATIONS_A_MINUTE = 10

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Call:
    """A request that came in, WebSockets included."""

    method: str
    path: str
    query: str


@dataclass(slots=True)
class Fault:
    """Act instead of answering the next `times` calls that fit, or before it with `delay` or `then` alone."""

    #: "" for any.
    method: str
    #: Searched for in the path, as a regular expression.
    path: str
    times: int = 1
    status: int | None = None
    body: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    delay: float = 0.0
    #: The connection is cut before anything is answered.
    cut: bool = False
    #: Called before it is answered.
    then: Callable[[], object] | None = None

    def fits(self, request: web.Request) -> bool:
        return self.times > 0 and self.method in {"", request.method} and re.search(self.path, request.path) is not None


class Emulator:
    """`async with Emulator(folder) as emulator:`; `emulator.url` is the API's address."""

    def __init__(
        self, folder: Path, *, longest_watch: float = 0.4, creations_a_minute: int = CREATIONS_A_MINUTE
    ) -> None:
        self.folder = folder
        self.machines: dict[str, Machine] = {}
        self.calls: list[Call] = []
        self.faults: list[Fault] = []
        self.url = ""
        #: Prepared disk that each new VM begins with.
        self.image: Path | None = None
        #: A service is watched this long at most, in seconds: tests have no time.
        self.longest_watch = longest_watch
        #: Is told of each new VM before anybody comes to it.
        self.on_added: Callable[[Machine], None] | None = None
        self._creations_a_minute = creations_a_minute
        self._creations: list[float] = []
        #: Number of requests while it is away, or None.
        self._missed: int | None = None
        self._stack = contextlib.AsyncExitStack()
        self._sockets = Path()
        self._guests: dict[str, web.AppRunner] = {}

    async def __aenter__(self) -> Self:
        # A Unix socket's path may have 107 bytes; pytest's folders can be longer.
        self._sockets = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="vm-")))
        application = web.Application(middlewares=[self._middleware], client_max_size=512 * 2**20)
        application.add_routes(self._routes())
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.2)
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for machine in self.machines.values():
            await machine.close()
        for guest in self._guests.values():
            await guest.cleanup()
        await self._stack.aclose()

    def counted(self, method: str = "", path: str = "") -> int:
        """Return the number of calls so far that fit."""
        return sum(method in call.method and re.search(path, call.path) is not None for call in self.calls)

    @contextlib.contextmanager
    def away(self) -> Iterator[None]:
        """Nobody is there while the block runs: what is open is cut, and what comes is cut off or answered 503."""
        self._missed = 0
        for machine in self.machines.values():
            machine.cut()
        try:
            yield
        finally:
            self._missed = None

    async def lose(self, name: str, disk: Path) -> None:
        """The VM is gone from one moment to the next, as if it had never been; its disk is put where a test looks."""
        await self._end(self.machines.pop(name))
        disk.parent.mkdir(exist_ok=True)
        await asyncio.to_thread(shutil.move, self.folder / name, disk)

    # --- requests ---

    @web.middleware
    async def _middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        self.calls.append(Call(request.method, request.path, request.query_string))
        if self._missed is not None:
            self._missed += 1
            if self._missed % 2 and request.transport is not None:
                request.transport.close()
            return web.Response(status=503, text="no healthy upstream")
        fault = next((f for f in self.faults if f.fits(request)), None)
        if fault is not None:
            fault.times -= 1
            if fault.then is not None:
                fault.then()
            await asyncio.sleep(fault.delay)
            if fault.cut and request.transport is not None:
                request.transport.close()
            if fault.status is not None:
                return web.Response(status=fault.status, text=fault.body, headers=dict(fault.headers))
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return _error(401, "unauthorized", "invalid token")
        name = request.match_info.get("name")
        if name is not None and name not in self.machines:
            return _error(404, "not_found", f"sprite {name} not found")
        return await handler(request)

    def _routes(self) -> list[web.RouteDef]:
        sprite = "/v1/sprites/{name}"
        return [
            web.post("/v1/sprites", self._create),
            web.get("/v1/sprites", self._list),
            web.get(sprite, self._get),
            web.delete(sprite, self._delete),
            web.get(f"{sprite}/exec", self._awake(run_command)),
            web.get(f"{sprite}/proxy", self._awake(run_proxy)),
            web.get(f"{sprite}/fs/read", self._awake(files.read)),
            web.put(f"{sprite}/fs/write", self._awake(files.write)),
            web.get(f"{sprite}/fs/list", self._awake(files.list_folder)),
            web.delete(f"{sprite}/fs/delete", self._awake(files.delete_file)),
            web.post(f"{sprite}/fs/rename", self._awake(files.rename)),
            web.post(f"{sprite}/fs/chmod", self._awake(files.chmod)),
            web.get(f"{sprite}/services", self._awake(_list_services)),
            web.get(f"{sprite}/services/{{service}}", self._awake(_get_service)),
            web.put(f"{sprite}/services/{{service}}", self._awake(self._define)),
            web.post(f"{sprite}/services/{{service}}/start", self._awake(self._start)),
            web.post(f"{sprite}/services/{{service}}/stop", self._awake(self._stop)),
            web.post(f"{sprite}/checkpoint", self._awake(_checkpoint)),
            web.get(f"{sprite}/checkpoints", self._awake(_list_checkpoints)),
            web.post(f"{sprite}/checkpoints/{{checkpoint}}/restore", self._awake(_restore)),
            web.get(f"{sprite}/policy/network", self._awake(_get_policy)),
            web.post(f"{sprite}/policy/network", self._awake(_set_policy)),
        ]

    def _awake(self, handler: Callable[[Machine, web.Request], Awaitable[web.StreamResponse]]) -> Handler:
        """Every request to a VM wakes it first."""

        async def handle(request: web.Request) -> web.StreamResponse:
            machine = self.machines[request.match_info["name"]]
            await machine.wake()
            return await handler(machine, request)

        return handle

    # --- VMs ---

    async def _create(self, request: web.Request) -> web.Response:
        name = (await request.json())["name"]
        now = time.monotonic()
        self._creations = [at for at in self._creations if now - at < 60.0]
        if len(self._creations) >= self._creations_a_minute:
            return web.json_response(
                {
                    "error": "sprite_creation_rate_limited",
                    "message": "Rate limit exceeded",
                    "limit": self._creations_a_minute,
                    "window_seconds": 60,
                    "retry_after_seconds": 1,
                },
                status=429,
            )
        if name in self.machines:
            return _error(400, "bad_request", "name has already been taken")
        self._creations.append(now)
        machine = await self.add(name)
        return web.json_response(_shown(machine), status=201)

    async def add(self, name: str) -> Machine:
        """A VM, as if somebody had created it."""
        root = self.folder / name
        if self.image is not None:
            await asyncio.to_thread(shutil.copytree, self.image, root, symlinks=True, ignore=no_sockets)
        machine = Machine(name, root, self._sockets)
        if self.on_added is not None:
            self.on_added(machine)
        self.machines[name] = machine
        self._guests[name] = await guest_api(machine)
        return machine

    async def _list(self, request: web.Request) -> web.Response:
        prefix = request.query.get("prefix", "")
        shown = [_shown(machine) for name, machine in self.machines.items() if name.startswith(prefix)]
        return web.json_response({"sprites": shown, "has_more": False, "next_continuation_token": None})

    async def _get(self, request: web.Request) -> web.Response:
        return web.json_response(_shown(self.machines[request.match_info["name"]]))

    async def _delete(self, request: web.Request) -> web.Response:
        machine = self.machines.pop(request.match_info["name"])
        # Its disk goes with it, and is in nobody's way: whoever asks again finds no VM, and may make another one.
        gone = machine.root.rename(machine.root.with_name(f"{machine.name}-{machine.id}-gone"))
        await self._end(machine)
        await asyncio.to_thread(shutil.rmtree, gone)
        return web.Response(status=204)

    async def _end(self, machine: Machine) -> None:
        await machine.close()
        await self._guests.pop(machine.name).cleanup()

    # --- services ---

    async def _define(self, machine: Machine, request: web.Request) -> web.StreamResponse:
        if not machine.has_services:
            return _error(501, "not_implemented", "services are not available")
        name, definition = request.match_info["service"], await request.json()
        known = machine.services.get(name)
        service = known or Service(name, definition)
        machine.services[name] = service
        service.definition = definition
        # A definition that was there is changed, and started by a call of its own.
        return await self._watched(machine, request, service, None if known else lambda: machine.start(service))

    async def _start(self, machine: Machine, request: web.Request) -> web.StreamResponse:
        service = machine.services.get(request.match_info["service"])
        if service is None:
            return _error(404, "not_found", "service not found")
        if service.runs:
            return _error(409, "conflict", "service already running")
        return await self._watched(machine, request, service, lambda: machine.start(service))

    async def _stop(self, machine: Machine, request: web.Request) -> web.StreamResponse:
        service = machine.services.get(request.match_info["service"])
        if service is None:
            return _error(404, "not_found", "service not found")
        if not service.runs and not service.wanted:
            return _error(409, "conflict", "service not running")
        seconds = float(request.query.get("timeout", "10s").rstrip("s"))
        return await self._watched(machine, request, service, lambda: machine.stop(service, seconds), watch=False)

    async def _watched(
        self,
        machine: Machine,
        request: web.Request,
        service: Service,
        work: Callable[[], Awaitable[None]] | None,
        *,
        watch: bool = True,
    ) -> web.StreamResponse:
        """Does it and tells, line by line, what the service says meanwhile and for a while after."""
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await response.prepare(request)
        async with machine.listening(service) as events:
            if work is not None:
                await work()
            seconds = min(float(request.query.get("duration", "5s").rstrip("s")), self.longest_watch)
            ends = time.monotonic() + (seconds if watch and work is not None else 0.0)
            while (left := ends - time.monotonic()) > 0 or not events.empty():
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(left, 0.01)):
                        event = await events.get()
                    await response.write(json.dumps(event).encode() + b"\n")
                    if event["type"] == "exit" and watch:
                        break
        await response.write(json.dumps({"type": "complete", "timestamp": 0, "log_files": {}}).encode() + b"\n")
        await response.write_eof()
        return response


# --- the rest of a VM ---


async def _list_services(machine: Machine, _request: web.Request) -> web.Response:
    return web.json_response([_service_shown(service) for service in machine.services.values()])


async def _get_service(machine: Machine, request: web.Request) -> web.Response:
    service = machine.services.get(request.match_info["service"])
    return web.json_response(_service_shown(service)) if service else _error(404, "not_found", "service not found")


def _service_shown(service: Service) -> dict[str, Any]:
    status = "running" if service.runs else "failed" if service.wanted else "stopped"
    process = service.process.pid if service.process and service.runs else None
    state = {"name": service.name, "status": status, "pid": process, "restart_count": service.restarts}
    return {"name": service.name, "needs": [], "args": [], **service.definition, "state": state}


async def _checkpoint(machine: Machine, request: web.Request) -> web.Response:
    comment = (await request.json()).get("comment", "") if request.can_read_body else ""
    name = await asyncio.to_thread(machine.keep, comment)
    return _lines({"type": "info", "data": "Creating checkpoint..."}, {"type": "complete", "data": name})


async def _list_checkpoints(machine: Machine, _request: web.Request) -> web.Response:
    return web.json_response(machine.checkpoints)


async def _restore(machine: Machine, request: web.Request) -> web.Response:
    name = request.match_info["checkpoint"]
    if name not in {checkpoint["id"] for checkpoint in machine.checkpoints}:
        return _error(404, "not_found", "checkpoint not found")
    await machine.restore(name)
    return _lines({"type": "info", "data": "Restoring..."}, {"type": "complete", "data": name})


async def _get_policy(machine: Machine, _request: web.Request) -> web.Response:
    return web.json_response({"rules": machine.policy})


async def _set_policy(machine: Machine, request: web.Request) -> web.Response:
    rules = (await request.json())["rules"]
    if not all(rule.get("action") in {"allow", "deny"} and rule.get("domain") for rule in rules):
        return _error(400, "bad_request", "invalid rule")
    machine.policy = rules
    return web.Response(status=204)


def _lines(*events: dict[str, str]) -> web.Response:
    text = "".join(json.dumps(event) + "\n" for event in events)
    return web.Response(text=text, content_type="application/x-ndjson")


def _shown(machine: Machine) -> dict[str, Any]:
    return {
        "id": machine.id,
        "name": machine.name,
        "organization": "test",
        "status": machine.status,
        "url": f"https://{machine.name}.example",
        "url_settings": {"auth": "sprite"},
        "created_at": "2026-11-20T12:00:00Z",
        "updated_at": "2026-11-20T12:00:00Z",
    }


def _error(status: int, code: str, message: str) -> web.Response:
    return web.json_response({"error": code, "message": message}, status=status)
