"""Entrances of several bridges in one process, over one database, with real sockets between them.

The test defines the handlers; admission, routing and forwarding are the bridge's own.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from aiohttp.typedefs import Handler

from bridge.auth.admission import Admission, OpenSockets, Revocations
from bridge.auth.login import Authenticator
from bridge.auth.people import People
from bridge.cluster.forward import ForwardedIdentity, ForwardHeader, Hops, RequestSigner
from bridge.cluster.ownership import OwnedElsewhere, Owner, Ownership
from bridge.config import Settings
from bridge.db.database import Database
from bridge.db.open import open_database
from bridge.routes.middleware import SecurityMiddleware
from bridge.routes.owner import OwnerRouter
from bridge.telemetry.metrics import Metrics
from sprite.protocol.replication import Lease
from tests.harness import PATIENCE

SECRET = "the secret that these bridges share"
_MAX_MESSAGE_BYTES = 2**20


@dataclass
class Places:
    """The shared table of owners: bridge address and epoch of each sprite."""

    at: dict[str, tuple[str, int]] = field(default_factory=dict)


class Placed(Ownership):
    """One bridge's view of it; the bridge takes any sprite without an owner."""

    def __init__(self, places: Places, address: str) -> None:
        self._places = places
        self.address = address

    async def own(self, sprite: str) -> Lease | None:
        address, epoch = self._places.at.setdefault(sprite, (self.address, 1))
        if address != self.address:
            raise OwnedElsewhere(address, epoch)
        return Lease(self.address, epoch)

    async def owner_of(self, sprite: str) -> Owner | None:
        address, epoch = self._places.at.get(sprite, (self.address, 0))
        return None if address == self.address else Owner(address, epoch)

    def holds(self, sprite: str) -> bool:
        return self._places.at.get(sprite, ("", 0))[0] == self.address

    def epoch(self, sprite: str) -> int | None:
        return self._places.at[sprite][1] if self.holds(sprite) else None


@dataclass
class Entrance:
    """The entrance of one bridge."""

    url: str
    people: People
    open_sockets: OpenSockets
    admission: Admission
    authenticator: Authenticator
    hops: Hops
    owner_router: OwnerRouter
    session: aiohttp.ClientSession
    runner: web.AppRunner


@asynccontextmanager
async def entrance(
    database: Database,
    places: Places,
    routes: Callable[[Entrance], list[web.RouteDef]],
    *,
    secret: str | None = SECRET,
    name: str | None = None,
    check_seconds: float = 3600.0,
    **hops: Any,
) -> AsyncIterator[Entrance]:
    """Run a bridge's entrance with these handlers; `others` are its additional names."""
    async with AsyncExitStack() as stack:
        application = web.Application()
        runner = web.AppRunner(application, handler_cancellation=True, shutdown_timeout=1)
        people = People(database)
        await people.prepare()
        settings = Settings(
            data=Path("/nowhere"), database_url="postgresql://shared", address=name and f"http://{name}"
        )
        authenticator = Authenticator(settings, people, await people.cookie_key(), 0)
        open_sockets, admission = OpenSockets(), Admission(people.tokens, lambda: True)
        revocations = await stack.enter_async_context(
            Revocations(database, open_sockets, admission, _died, check_seconds=check_seconds)
        )
        seal = None if secret is None else RequestSigner(secret)
        passing = await stack.enter_async_context(Hops(seal, max_message_bytes=_MAX_MESSAGE_BYTES, **hops))
        ownership = Placed(places, "")
        owner_router = OwnerRouter(authenticator, people.tokens, ownership, passing, seal, revocations)
        edge = SecurityMiddleware(authenticator, Metrics(), is_secure=False, has_peers=True)
        application.middlewares.append(edge.around)
        application.on_response_prepare.append(edge.add_headers)
        timeout = aiohttp.ClientTimeout(total=PATIENCE)
        session = await stack.enter_async_context(aiohttp.ClientSession(timeout=timeout))
        made = Entrance("", people, open_sockets, admission, authenticator, passing, owner_router, session, runner)
        application.add_routes(owner_router.guarded(routes(made)))
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        made.url = ownership.address = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield made


def _died() -> None:
    raise AssertionError("a task died")


def door(answer: Handler) -> Callable[[Entrance], list[web.RouteDef]]:
    """Make a handler of a sprite, with the test's answer to an admitted person."""

    def routes(here: Entrance) -> list[web.RouteDef]:
        async def opened(request: web.Request) -> web.StreamResponse:
            if here.authenticator.is_forged(request) and request.method != "GET":
                return web.Response(status=403, text="forged")
            caller = await here.authenticator.caller(request)
            return here.authenticator.logged_out(request) if caller is None else await answer(request)

        return [web.route(method, "/files/{path:.+}", opened) for method in ("GET", "POST")]

    return routes


def bearing(token: str, headers: Mapping[str, str] | None = None) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}", **(headers or {})}


class Two:
    """The first bridge owns Ada's sprite; she connects to the second."""

    def __init__(self, owner: Entrance, other: Entrance, places: Places, token: str) -> None:
        self.owner = owner
        self.other = other
        self.places = places
        self.token = token

    def ask(self, method: str = "GET", path: str = "/files/a", **options: Any) -> Any:
        options["headers"] = bearing(self.token, options.get("headers"))
        return self.other.session.request(method, f"{self.other.url}{path}", **options)

    def socket(self, **options: Any) -> Any:
        return self.other.session.ws_connect(f"{self.other.url}/files/socket", headers=bearing(self.token), **options)

    @property
    def way_in(self) -> str:
        """Return the hash of Ada's token, as a forwarded request names it."""
        return hashlib.sha256(self.token.encode()).hexdigest()

    def signed(
        self, method: str = "GET", path: str = "/files/a", secret: str = SECRET, **changes: Any
    ) -> dict[str, str]:
        """Return the headers with which another bridge forwards Ada's request."""
        passed = ForwardedIdentity("ada", "token", self.way_in)
        return RequestSigner(secret).headers(
            method, path, ForwardHeader(passed, changes.get("epoch", 1), "0011223344556677")
        )

    async def straight(self, headers: dict[str, str], path: str = "/files/a") -> tuple[int, Any]:
        """Return the owner's answer to a client that connects to it directly."""
        async with self.owner.session.get(f"{self.owner.url}{path}", headers=headers) as response:
            return response.status, await response.json()


@asynccontextmanager
async def two(folder: Path, answer: Handler, **options: Any) -> AsyncIterator[Two]:
    places = Places()
    async with (
        open_database(folder / "shared.db") as database,
        entrance(database, places, door(answer)) as owner,
        entrance(database, places, door(answer), **options) as other,
    ):
        _, token = await owner.people.add("ada")
        places.at["ada"] = (owner.url, 1)
        yield Two(owner, other, places, token)
