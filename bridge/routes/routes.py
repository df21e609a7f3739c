"""The public routes, with their access checks."""

import hmac
from collections.abc import Callable
from functools import partial
from typing import Final

from aiohttp import WSCloseCode, web
from aiohttp.typedefs import Handler

from bridge.auth import login
from bridge.auth.admission import OpenSockets
from bridge.auth.login import Authenticator
from bridge.auth.people import People
from bridge.cluster.ownership import NotOwnedError, Ownership
from bridge.config import LOCAL_PERSON, Settings
from bridge.db import data_folder
from bridge.db.database import DatabaseAwayError, DatabaseError
from bridge.http import messages
from bridge.hub.hub import Relay
from bridge.providers.provider import Host, HostError, Phase, Report
from bridge.replicas.restore import Asked, Restored, Restorer, RestoreRefusedError
from bridge.replicas.store import StoreError
from bridge.routes import files
from bridge.routes.files import Pages
from bridge.telemetry.logs import PERSON
from bridge.telemetry.metrics import Metrics, Probe
from sprite.protocol.messages import MAX_FRAME_BYTES

#: A frame above the protocol's limit still gets an error message. One far above it ends the connection.
MAX_MESSAGE_BYTES = 2 * MAX_FRAME_BYTES
#: A silent disconnect is noticed after one and a half of these intervals.
_TOO_MANY = "Too many pages and terminals"
_HEARTBEAT_SECONDS = 30.0


class Readiness:
    """Whether the bridge accepts connections: only while all is open. `is_well`: whether it can write its data."""

    def __init__(self, is_well: Callable[[], bool]) -> None:
        self.is_ready = False
        self.is_well = is_well


class Routes:
    """Authenticate the requests to the public routes and pass them to their handlers."""

    def __init__(
        self,
        settings: Settings,
        authenticator: Authenticator,
        people: People,
        open_sockets: OpenSockets,
        host: Host,
        relay: Relay,
        metrics: Metrics,
        readiness: Readiness,
    ) -> None:
        self._operator_token = data_folder.operator_token(settings)
        self._metrics_open = settings.metrics_open
        self._authenticator = authenticator
        self._people = people
        self._open_sockets = open_sockets
        self._host = host
        self._relay = relay
        self._metrics = metrics
        self._readiness = readiness
        self._database = Probe(partial(people.may_come, LOCAL_PERSON))
        self.offline_model = settings.uses_offline_model
        self._pages = Pages(offline_model=self.offline_model, is_here=settings.is_alone)

    def table(self) -> list[web.RouteDef]:
        """Return the routes. The catch-all for the page's files comes last."""
        return [
            # HEAD / belongs to the model proxy.
            web.get("/", self._index, allow_head=False),
            # Scanners and link previews use HEAD, which must not use the link up.
            web.get("/login", self._authenticator.login, allow_head=False),
            web.post("/login", partial(self._leaving, answer=self._authenticator.change_person)),
            web.post("/logout", partial(self._leaving, answer=self._authenticator.logout)),
            web.get("/ws", self._socket, allow_head=False),
            web.get("/ws/why", self._why, allow_head=False),
            web.get("/files/{path:.+}", self._file, allow_head=False),
            web.get("/healthz", self._healthz),
            web.get("/readyz", self._readyz),
            web.get("/metrics", self._scrape),
            web.get("/-/{version}/{name:.+}", self._pages.asset),
            web.get("/{name:.+}", self._pages.asset),
        ]

    async def serve_socket(self, request: web.Request, person: str, way_in: str | None = None) -> web.StreamResponse:
        """Serve a WebSocket of an authenticated person. Revoking `way_in`, the hash of a session or token, ends it."""
        request[PERSON] = person
        if not self._readiness.is_ready:
            return messages.page(request, 503, "The bridge is stopping", code="stopping")
        if not self._open_sockets.may_enter(person):
            title = f"{_TOO_MANY} are open at once"
            return messages.page(request, 429, title, "Close one of them.", code="too_many_connections")
        websocket = web.WebSocketResponse(heartbeat=_HEARTBEAT_SECONDS, max_msg_size=MAX_MESSAGE_BYTES, compress=False)
        if not websocket.can_prepare(request).ok:
            upgrade = {"Upgrade": "websocket"}
            title = "This address speaks WebSocket only"
            return messages.page(request, 426, title, code="websocket_only", headers=upgrade)
        with self._open_sockets.inside(person, way_in, websocket) as visitor:
            await websocket.prepare(request)
            await self._people.seen(person)
            try:
                if visitor.is_ended:
                    await websocket.close(code=WSCloseCode.POLICY_VIOLATION, message=b"ended meanwhile")
                else:
                    await self._relay.serve(websocket, person, request.transport)
            finally:
                await self._people.seen(person)
        return websocket

    async def _index(self, request: web.Request) -> web.StreamResponse:
        caller = await self._authenticator.known(request)
        response = self._pages.index(request)
        await self._authenticator.renew(response, caller)
        return response

    async def _leaving(self, request: web.Request, answer: Handler) -> web.StreamResponse:
        """Answer a login or logout. If it succeeds, end the browser's previous session and its WebSockets."""
        left = await self._authenticator.browser(request)
        response = await answer(request)
        is_done = response.status == web.HTTPSeeOther.status_code
        if is_done and left is not None and left.session is not None:
            await self._people.end_session(left.session)
            await self._open_sockets.end_way_in(left.person, login.way_in_of(left.session))
        return response

    async def _socket(self, request: web.Request) -> web.StreamResponse:
        caller = await self._authenticator.known(request, acts=True)
        return await self.serve_socket(request, caller.person, caller.way_in)

    async def _why(self, request: web.Request) -> web.Response:
        """Return why a page's WebSocket is refused, which browsers hide: `{"message"}`, "" if it is not."""
        caller = await self._authenticator.caller(request)
        words = "" if self._readiness.is_ready else "The bridge is starting, or stopping."
        if caller is not None and not self._open_sockets.may_enter(caller.person):
            words = f"{_TOO_MANY} of yours are open at once: close one of them."
        return messages.as_json({"message": words})

    async def _file(self, request: web.Request) -> web.StreamResponse:
        caller = await self._authenticator.known(request)
        return await files.serve(request, self._host, caller.person)

    async def _healthz(self, _request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _request: web.Request) -> web.Response:
        if not self._readiness.is_ready:
            return web.Response(status=503, text="stopping\n")
        is_well = self._readiness.is_well()
        try:
            # Detects a broken disk or an unreachable server.
            await self._database.answer()
        except (DatabaseAwayError, TimeoutError):
            return web.Response(status=503, text="the database is unreachable\n")
        except DatabaseError:
            is_well = False
        if not is_well:
            return web.Response(status=503, text="the disk cannot be written to\n")
        return web.Response(text="ready\n")

    async def _scrape(self, request: web.Request) -> web.Response:
        token, expected = login.bearer(request), self._operator_token.encode()
        is_operator = token is not None and hmac.compare_digest(token.encode(errors="surrogateescape"), expected)
        if not (self._metrics_open or is_operator):
            title = "The metrics are for whoever runs this bridge"
            words = "Send `Authorization: Bearer` with the token in `run/operator-token` of the bridge's data folder."
            return messages.page(request, 403, title, words, code="forbidden")
        return web.Response(body=await self._metrics.text(), headers={"Content-Type": self._metrics.content_type})


#: A person's choices. All but the first require the offer "choose"; see LinkState.
_CHOICES: Final = ("restore", "over", "keep")


class Restoring:
    """Restore and export sprites, with the relay that reports progress and the ownership of sprites."""

    def __init__(self, restorer: Restorer, relay: Relay, ownership: Ownership) -> None:
        self.restorer = restorer
        self._relay = relay
        self._ownership = ownership

    async def restore(self, sprite: str, asked: Asked, report: Report) -> Restored:
        """Restore a sprite; see Restorer. Raises NotOwnedError if another bridge owns it."""

        def tell(phase: Phase, words: str) -> None:
            report(phase, words)
            if (room := self._relay.room_of(sprite)) is not None:
                room.report(phase, words)

        try:
            await self._ownership.own(sprite)
            with self._ownership.using(sprite):
                return await self.restorer.restore(sprite, asked, tell)
        finally:
            # Clients that wait for the sprite get it now, without waiting for the next attempt.
            if (room := self._relay.room_of(sprite)) is not None:
                room.nudge()

    def door(self, authenticator: Authenticator) -> Handler:
        """Return the handler of `POST /restore`: restores the person's newest replica, without replacing anything.

        `?how=` selects another way, accepted only while the person's page offers it. `over` replaces the current agent,
        `keep` leaves the agent as it is.
        """

        async def answer(request: web.Request) -> web.StreamResponse:
            caller = await authenticator.known(request, acts=True)
            try:
                done = await self.asked_by(caller.person, request.query.get("how", "restore"))
            except RestoreRefusedError as error:
                return messages.page(request, 409, "Nothing was restored", str(error), code="refused")
            except (HostError, StoreError, NotOwnedError) as error:
                return messages.page(request, 503, "The agent could not be restored", str(error), code="unavailable")
            return messages.as_json({"message": done.words, "left_out": done.left_out})

        return answer

    async def asked_by(self, person: str, how: str) -> Restored:
        """Restore a person's sprite, or keep it. Raises RestoreRefusedError if the page does not offer that now."""
        if how not in _CHOICES:
            raise RestoreRefusedError(f"`how` must be {', '.join(_CHOICES)}, or missing.")
        room = self._relay.room_of(person)
        if how != "restore" and (room is None or room.offer != "choose"):
            raise RestoreRefusedError("Your agent needs no restore at the moment. Nothing was changed.")
        if how == "keep":
            return Restored(await self.restorer.go_on(person))
        return await self.restore(person, Asked(person, over=how == "over"), lambda _phase, _words: None)
