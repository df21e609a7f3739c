"""The composition root: opens everything in order, listens, and closes it in reverse.

Entry order reads as start-up. The end begins out of order: WebSockets are closed first, then sprites are stopped
while the model proxy still answers (a sprite's last flush needs it), then the listener, the ledger, the file.
"""

from __future__ import annotations

import logging
import resource
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager
from dataclasses import dataclass

from aiohttp import web

from bridge import control, data_folder
from bridge.config import Settings
from bridge.database import open_database
from bridge.edge import IDLE_SECONDS, LINGERING_SECONDS, MAX_BODY_BYTES, Edge
from bridge.errors import OperatorError
from bridge.hosts import Host, ModelAccess
from bridge.hosts.local import LocalHost
from bridge.login import Doorkeeper
from bridge.metrics import Metrics
from bridge.offline_model import OfflineModel
from bridge.operator_api import OperatorApi
from bridge.people import People
from bridge.relay import Relay
from bridge.routes import Readiness, Routes
from bridge.status import Overview, Spend
from bridge.visitors import Visitors

log = logging.getLogger(__name__)

_BACKLOG = 1024
#: Handlers have been told to end by then; what still runs is cut.
_CLEANUP_SECONDS = 5.0
#: Each client is a socket, each sprite another, and a local one two pipes.
_WANTED_FILES = 65536


@dataclass(frozen=True, slots=True)
class Bridge:
    """A bridge that listens. `login_token` is for whoever started it, None where people were added."""

    url: str
    login_token: str | None

    @property
    def address(self) -> str:
        """What to open in a browser."""
        return self.url if self.login_token is None else login_link(self.url, self.login_token)


def login_link(url: str, token: str) -> str:
    """The address that logs a browser in, once."""
    return f"{url}/login?token={token}"


@asynccontextmanager
async def running(settings: Settings) -> AsyncIterator[Bridge]:
    """A bridge while the block runs. OperatorError when it cannot be, FolderTakenError where another one is."""
    _raise_file_limit()
    async with AsyncExitStack() as stack:
        stack.enter_context(data_folder.owned(settings))
        database = await stack.enter_async_context(open_database(settings.database))
        people = People(database)
        await people.prepare()
        if not settings.is_loopback and not await people.any_added():
            raise OperatorError(
                f"On {settings.host} others could connect, and nobody was added who may come in. "
                "Add yourself first: python -m bridge users add NAME"
            )
        listener = stack.enter_context(_bound(settings.host, settings.port))
        port: int = listener.getsockname()[1]
        url = f"http://{_in_url(settings.host)}:{port}"
        upstream = settings.base_url
        if settings.uses_offline_model:
            upstream = (await stack.enter_async_context(OfflineModel())).url

        async def access(_sprite: str) -> ModelAccess:
            return ModelAccess(upstream, "offline")

        async def spend(_sprite: str) -> Spend:
            return Spend()

        async def revoke_sprite(_sprite: str) -> None:
            pass

        host = LocalHost(
            settings.workspaces, access, environment=settings.environment, permissions=settings.permissions
        )
        relay = Relay(host)
        visitors = Visitors()
        readiness = Readiness()
        metrics = Metrics()
        metrics.add_gauge("bridge_websockets", "Open pages and terminals.", "person", visitors.counts)
        doorkeeper = Doorkeeper(settings, people, await people.cookie_key(), port)
        routes = Routes(settings, doorkeeper, people, visitors, host, relay, metrics, readiness)
        api = OperatorApi(
            people,
            visitors,
            host,
            routes,
            Overview(people, host, relay.snapshot, spend),
            revoke_sprite,
            lambda token: login_link(settings.public_url or url, token),
        )
        edge = Edge(doorkeeper, metrics, is_secure=(settings.public_url or "").startswith("https:"))
        application = web.Application(middlewares=[edge.middleware()], client_max_size=MAX_BODY_BYTES)
        application.on_response_prepare.append(edge.add_headers)
        application.add_routes(routes.table())

        # The listener outlives the sprites, which outlive the connections to them.
        await stack.enter_async_context(_served(application, listener))
        await stack.enter_async_context(host)
        await stack.enter_async_context(relay)
        control_socket = stack.enter_context(control.listening_socket(settings.run))
        await stack.enter_async_context(_served(api.application(), control_socket))
        stack.push_async_callback(visitors.end_all)

        readiness.is_ready = True
        data_folder.write_address(settings.run, settings.public_url or url)
        try:
            yield Bridge(url, None if await people.any_added() else await people.local_link())
        finally:
            readiness.is_ready = False


@asynccontextmanager
async def people_alone(settings: Settings) -> AsyncIterator[People]:
    """The people of a data folder on which no bridge runs; it is owned meanwhile."""
    with data_folder.owned(settings):
        async with open_database(settings.database) as database:
            yield People(database)


@asynccontextmanager
async def looked_into(settings: Settings) -> AsyncIterator[Overview]:
    """What can be told of the sprites of a data folder on which no bridge runs."""
    async with people_alone(settings) as people:

        async def spend(_sprite: str) -> Spend:
            return Spend()

        yield Overview(people, None, list, spend)


@asynccontextmanager
async def host_alone(settings: Settings) -> AsyncIterator[Host]:
    """The host without a bridge around it, to deploy to."""
    async with people_alone(settings):

        async def access(_sprite: str) -> ModelAccess:
            return ModelAccess(settings.public_url or "", "")

        async with LocalHost(settings.workspaces, access, environment=settings.environment) as host:
            yield host


@asynccontextmanager
async def _served(application: web.Application, listener: socket.socket) -> AsyncIterator[None]:
    runner = web.AppRunner(
        application,
        access_log=None,
        keepalive_timeout=IDLE_SECONDS,
        lingering_time=LINGERING_SECONDS,
        shutdown_timeout=_CLEANUP_SECONDS,
    )
    await runner.setup()
    try:
        await web.SockSite(runner, listener, backlog=_BACKLOG).start()
        yield
    finally:
        await runner.cleanup()


@contextmanager
def _bound(host: str, port: int) -> Iterator[socket.socket]:
    """The listening socket, before anything else is started: a port that is taken is said at once."""
    name = host.strip("[]")
    try:
        family, _, _, _, address = socket.getaddrinfo(name, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.create_server(address[:2], family=family, backlog=_BACKLOG)
    except OSError as error:
        raise OperatorError(
            f"Cannot listen on {host}:{port} ({error.strerror or error}). Choose another --port; 0 takes a free one."
        ) from error
    with closing(listener):
        yield listener


def _in_url(host: str) -> str:
    return f"[{host.strip('[]')}]" if ":" in host else host


def _raise_file_limit() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED_FILES if hard == resource.RLIM_INFINITY else min(_WANTED_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
