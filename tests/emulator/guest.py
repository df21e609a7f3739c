"""What an emulated VM sees of the API: the Tasks API, on a socket of its own."""

from __future__ import annotations

import time

from aiohttp import web
from aiohttp.typedefs import Handler

from tests.emulator.machine import Machine


async def guest_api(machine: Machine) -> web.AppRunner:
    """Serves it until it is cleaned up."""

    async def hold(request: web.Request) -> web.Response:
        name, body = request.match_info["task"], await request.json()
        machine.task_calls.append(("PUT", name))
        machine.tasks[name] = time.monotonic() + _seconds(body["expire"])
        return web.json_response({"name": name, "expire": body["expire"]})

    async def release(request: web.Request) -> web.Response:
        name = request.match_info["task"]
        machine.task_calls.append(("DELETE", name))
        return web.Response(status=204 if machine.tasks.pop(name, None) is not None else 404)

    @web.middleware
    async def refuse(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.method in machine.refusals:
            machine.refusals.remove(request.method)
            return web.Response(status=503)
        return await handler(request)

    application = web.Application(middlewares=[refuse])
    application.add_routes([web.put("/v1/tasks/{task}", hold), web.delete("/v1/tasks/{task}", release)])
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.2)
    await runner.setup()
    await web.UnixSite(runner, str(machine.socket)).start()
    return runner


def _seconds(text: str) -> float:
    units = {"s": 1.0, "m": 60.0, "h": 3600.0}
    return float(text[:-1]) * units[text[-1]]
