"""What the control socket answers: people, status, deploys, and what `bridge chat` needs. See control.py."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Protocol

import msgspec
from aiohttp import web

from bridge.config import LOCAL_PERSON
from bridge.door import files, messages
from bridge.door.admission import Admission
from bridge.door.edge import Handler
from bridge.door.people import People
from bridge.door.routes import Routes
from bridge.door.tokens import Token
from bridge.door.visitors import Visitors
from bridge.errors import BridgeError, OperatorError
from bridge.hosts.host import (
    Host,
    HostError,
)
from bridge.operating.status import Overview

log = logging.getLogger(__name__)


class Notices(Protocol):
    """What operators ask of notifications."""

    async def key(self) -> str:
        """The key that signs what the webhook is sent."""
        ...

    async def try_out(self, person: str) -> list[str]:
        """Tells a person that this is a test; by which ways, in words."""
        ...

    async def trouble(self) -> str:
        """What is wrong, in words; "" where nothing is."""
        ...


class AskedToken(msgspec.Struct):
    """A token that is to be made: its name (null: one is found for it), its scopes (null: a full one)."""

    label: str | None
    scopes: list[str] | None


class MadeToken(msgspec.Struct):
    """A token that was made; `secret` is not shown again."""

    token: Token
    secret: str


class OperatorApi:
    """Handlers of the control socket; access to the socket is access to everything here."""

    def __init__(
        self,
        people: People,
        visitors: Visitors,
        admission: Admission,
        host: Host,
        routes: Routes,
        overview: Overview,
        notices: Notices,
        revoke_sprite: Callable[[str], Awaitable[None]],
        link_of: Callable[[str], str],
        give_way: Callable[[], None] | None,
    ) -> None:
        self._people = people
        self._visitors = visitors
        self._admission = admission
        self._host = host
        self._routes = routes
        self._overview = overview
        self._notices = notices
        self._revoke_sprite = revoke_sprite
        self._link_of = link_of
        self._give_way = give_way

    def application(self) -> web.Application:
        """The application to serve on the control socket."""
        application = web.Application(middlewares=[_explained])
        application.add_routes(
            [
                web.get("/ws", self._socket),
                web.get("/files/{path:.+}", self._file, allow_head=False),
                web.get("/status", self._status),
                web.get("/notify/key", self._notify_key),
                web.post("/notify/test/{name}", self._notify_test),
                web.get("/users", self._users),
                web.post("/users/{name}", self._add),
                web.post("/users/{name}/restore", self._restore),
                web.post("/users/{name}/link", self._link),
                web.delete("/users/{name}", self._revoke),
                web.get("/users/{name}/tokens", self._tokens),
                web.post("/users/{name}/tokens", self._make_token),
                web.delete("/users/{name}/tokens/{label}", self._revoke_token),
                web.post("/deploy/{name}", self._deploy),
                web.get("/export/{name}", self._export, allow_head=False),
                web.post("/give-way", self._make_room),
            ]
        )
        return application

    async def _socket(self, request: web.Request) -> web.StreamResponse:
        person = request.query.get("person", LOCAL_PERSON)
        await self._people.require(person)
        return await self._routes.serve_socket(request, person)

    async def _file(self, request: web.Request) -> web.StreamResponse:
        person = request.query.get("person", LOCAL_PERSON)
        await self._people.require(person)
        return await files.serve(request, self._host, person)

    async def _make_room(self, _request: web.Request) -> web.Response:
        if self._give_way is None:
            raise OperatorError("This bridge was started to serve, and gives way to no other.")
        log.info("giving way to a bridge that serves")
        self._give_way()
        return _json({})

    async def _status(self, _request: web.Request) -> web.Response:
        return _json({"sprites": await self._overview.rows(), "trouble": await self._notices.trouble()})

    async def _notify_key(self, _request: web.Request) -> web.Response:
        return _json({"key": await self._notices.key()})

    async def _notify_test(self, request: web.Request) -> web.Response:
        await self._people.require(request.match_info["name"])
        return _json({"ways": await self._notices.try_out(request.match_info["name"])})

    async def _users(self, _request: web.Request) -> web.Response:
        return _json({"users": await self._people.everyone()})

    async def _add(self, request: web.Request) -> web.Response:
        link, token = await self._people.add(request.match_info["name"])
        log.info("a person was added", extra={"person": request.match_info["name"]})
        return _json({"link": self._link_of(link), "token": token})

    async def _restore(self, request: web.Request) -> web.Response:
        link, token = await self._people.restore(request.match_info["name"])
        log.info("a person was let in again", extra={"person": request.match_info["name"]})
        return _json({"link": self._link_of(link), "token": token})

    async def _link(self, request: web.Request) -> web.Response:
        return _json({"link": self._link_of(await self._people.link(request.match_info["name"]))})

    async def _revoke(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        await self._people.revoke(name)
        self._admission.end_person(name)
        await self._visitors.end_person(name)
        await self._revoke_sprite(name)
        log.info("a person was revoked", extra={"person": name})
        return _json({})

    async def _tokens(self, request: web.Request) -> web.Response:
        return _json({"tokens": await self._people.tokens.of(request.match_info["name"])})

    async def _make_token(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        asked = msgspec.json.decode(await request.read(), type=AskedToken)
        secret, token = await self._people.tokens.make(name, asked.label, asked.scopes)
        log.info("a token was made", extra={"person": name})
        return _json(MadeToken(token, secret))

    async def _revoke_token(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        key = await self._people.tokens.revoke(name, request.match_info["label"])
        self._admission.revoked(key)
        await self._visitors.end_way_in(name, key.hex())
        log.info("a token was revoked", extra={"person": name})
        return _json({})

    async def _deploy(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        response = web.StreamResponse(headers={"Content-Type": "application/x-ndjson"})
        await response.prepare(request)
        steps: asyncio.Queue[tuple[str, str] | None] = asyncio.Queue()

        async def deploy() -> None:
            try:
                await self._host.deploy(name, lambda phase, message: steps.put_nowait((phase, message)))
                steps.put_nowait(("done", f"{name} is deployed."))
            except HostError as error:
                steps.put_nowait(("failed", str(error)))
            finally:
                steps.put_nowait(None)

        async with asyncio.TaskGroup() as group:
            group.create_task(deploy(), name=f"deploy of {name}")
            while (step := await steps.get()) is not None:
                await response.write(msgspec.json.encode({"phase": step[0], "words": step[1]}) + b"\n")
        return response

    async def _export(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["name"]
        async with AsyncExitStack() as stack:
            try:
                chunks = await self._host.export(name, _unheard)
                if isinstance(chunks, AsyncGenerator):
                    # Where the client goes away in the middle, the command ends now.
                    stack.push_async_callback(chunks.aclose)
                # Most of what can be wrong is known before the first bytes.
                chunk = await anext(chunks, b"")
            except HostError as error:
                return messages.page(request, 503, str(error), code="unavailable")
            response = web.StreamResponse(headers={"Content-Type": "application/zip"})
            await response.prepare(request)
            try:
                while chunk:
                    await response.write(chunk)
                    chunk = await anext(chunks, b"")
            except HostError as error:
                log.warning("an archive could not be written to its end", extra={"person": name})
                # The client sees that it is not all, where a quiet end would look like one.
                if request.transport is not None:
                    request.transport.abort()
                raise ConnectionResetError(str(error)) from error
            await response.write_eof()
            return response


def _unheard(_phase: str, _words: str) -> None:
    """Who asks for an archive hears of it when it comes."""


def _json(value: object) -> web.Response:
    return web.Response(body=msgspec.json.encode(value), content_type="application/json")


@web.middleware
async def _explained(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refusals in words; anything else is a fault of ours, and is noted."""
    try:
        return await handler(request)
    except BridgeError as error:
        return messages.page(request, 400, str(error), code="refused")
    except (web.HTTPException, ConnectionError):
        raise
    except Exception:
        # The command line gets the message, the log the traceback.
        log.exception("a request on the control socket failed")
        return messages.page(request, 500, "Something went wrong; the bridge's log says where", code="internal")
