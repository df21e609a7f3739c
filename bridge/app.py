"""The composition root: opens everything in order, listens, and closes it in reverse.

Entry order reads as start-up. The end begins out of order: WebSockets are closed first, then sprites are stopped
while the model proxy still answers (a sprite's last flush needs it), then the listener, the ledger, the file.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from aiohttp import web

from bridge import data_folder, memory_note
from bridge.config import LOCAL_PERSON, Settings, default_data
from bridge.database import Database, open_database
from bridge.door.admission import Admission
from bridge.door.edge import Edge
from bridge.door.lobby import Lobby
from bridge.door.login import Doorkeeper
from bridge.door.people import People
from bridge.door.routes import Readiness, Routes
from bridge.door.visitors import Visitors
from bridge.doors.doors import Doors
from bridge.errors import OperatorError
from bridge.hosts.archive import Archive
from bridge.hosts.following import Following
from bridge.hosts.host import (
    Access,
    Host,
    ModelAccess,
)
from bridge.hosts.local import LocalHost
from bridge.hosts.sprites import SpritesHost
from bridge.listening import bound, in_url, raise_file_limit, served
from bridge.llm.budgets import Budgets, Limits
from bridge.llm.exits import Exits
from bridge.llm.ledger import Ledger
from bridge.llm.models import Models
from bridge.llm.proxy import LlmProxy
from bridge.llm.rate_limits import RateLimits
from bridge.llm.sprite_tokens import SpriteTokens
from bridge.llm.upload import MAX_BODY_BYTES
from bridge.llm.upstream import Upstream
from bridge.mcp.addresses import Addresses
from bridge.mcp.entrance import McpEntrance
from bridge.mcp.grants import Grants
from bridge.notify.notice import Channel, Notice
from bridge.notify.notifier import Notifier
from bridge.notify.outbox import Outbox
from bridge.notify.push import Push
from bridge.notify.push_routes import PushRoutes
from bridge.notify.settings import NotifySettingsStore
from bridge.notify.settings_routes import SettingsRoutes
from bridge.notify.signature import shown
from bridge.notify.subscriptions import Subscriptions
from bridge.notify.tidings import Tidings
from bridge.notify.vapid import VapidKey, kept_key
from bridge.notify.webhook import Webhook
from bridge.observing.metrics import Metrics
from bridge.offline.model import OfflineModel
from bridge.operating import control
from bridge.operating.operator_api import OperatorApi
from bridge.operating.status import Overview
from bridge.relay.relay import Relay
from bridge.waking.due_dates import DueDates, stored
from bridge.waking.waker import Waker

#: What is shipped to VMs stands beside the bridge.
_ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True)
class Bridge:
    """A bridge that listens. `login_token` is the local person's, None where people were added."""

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
async def running(
    settings: Settings, on_death: Callable[[], None], give_way: Callable[[], None] | None = None
) -> AsyncIterator[Bridge]:
    """A bridge while the block runs. OperatorError when it cannot be, FolderTakenError where another one is.

    `on_death` is called when a task died without which there is no bridge: the block has to end, and TaskDiedError is
    raised then. `give_way` is called when a bridge that serves wants the folder: the block ends soon.
    """
    raise_file_limit()
    async with AsyncExitStack() as stack:
        stack.enter_context(data_folder.owned(settings))
        database = await stack.enter_async_context(open_database(settings.database))
        people = People(database)
        await people.prepare()
        await _refuse_what_nobody_may(settings, people)
        listener = stack.enter_context(bound(settings.host, settings.port))
        port: int = listener.getsockname()[1]
        url = f"http://{in_url(settings.host)}:{port}"
        tokens = await stack.enter_async_context(SpriteTokens(database))
        notices = await stack.enter_async_context(_notices(settings, database, people, on_death))
        budgets = Budgets(Limits(settings.daily_usd, settings.monthly_usd), on_used_up=notices.tidings.budget_ended)
        ledger = await stack.enter_async_context(Ledger(database, on_death=on_death))
        proxy = await stack.enter_async_context(_model_proxy(settings, tokens, budgets, ledger))
        host = _host(settings, tokens, port)
        due = await stack.enter_async_context(DueDates(database, on_death))
        relay = Relay(host, [due, notices.tidings])
        waker = Waker(relay, due, people.may_come, on_death)
        visitors = Visitors()
        readiness = Readiness(lambda: not ledger.is_behind)
        admission = Admission(people.tokens, lambda: readiness.is_ready)
        metrics = _measured(visitors, relay, proxy, budgets, waker, notices)
        doorkeeper = Doorkeeper(settings, people, await people.cookie_key(), port)
        routes = Routes(settings, doorkeeper, people, visitors, host, relay, metrics, readiness)

        async def revoke_sprite(name: str) -> None:
            waker.forget(name)
            await tokens.revoke(name)

        api = OperatorApi(
            people,
            visitors,
            admission,
            host,
            routes,
            Overview(people, host, relay.snapshot, ledger.spend, partial(stored, database), waker.trouble),
            notices,
            revoke_sprite,
            lambda token: login_link(settings.public_url or url, token),
            give_way,
        )
        edge = Edge(doorkeeper, metrics, is_secure=(settings.public_url or "").startswith("https:"))
        lobby, doors = Lobby(), Doors(admission, relay)
        mcp = McpEntrance(
            *(admission, doorkeeper, relay, Grants(database), await people.cookie_key(), Addresses(settings, port))
        )
        application = _application(
            lobby,
            edge,
            [
                *doors.routes(proxy.list_models),
                *mcp.routes(),
                *proxy.routes(),
                *notices.routes(doorkeeper, relay),
                # The catch-all for the page's files comes last.
                *routes.table(),
            ],
        )

        # The listener outlives the sprites, which outlive the connections to them.
        await stack.enter_async_context(served(application, listener, on_death, lobby=lobby))
        await stack.enter_async_context(host)
        await stack.enter_async_context(relay)
        await stack.enter_async_context(doors)
        await stack.enter_async_context(mcp)
        await stack.enter_async_context(waker)
        await stack.enter_async_context(_following(settings, host))
        await stack.enter_async_context(
            served(api.application(), stack.enter_context(control.listening_socket(settings.run)), on_death)
        )
        stack.push_async_callback(visitors.end_all)

        readiness.is_ready = True
        data_folder.write_address(settings.run, settings.public_url or url)
        try:
            yield Bridge(url, None if await people.any_added() else await _for_local_person(settings, people, host))
        finally:
            readiness.is_ready = False


@asynccontextmanager
async def webhook_key_alone(settings: Settings) -> AsyncIterator[str]:
    """The key that signs what the webhook is sent, of a data folder on which no bridge runs."""
    with data_folder.owned(settings):
        async with open_database(settings.database) as database:
            yield shown(settings.notify_key or await Outbox(database).key())


@asynccontextmanager
async def people_alone(settings: Settings) -> AsyncIterator[People]:
    """The people of a data folder on which no bridge runs; it is owned meanwhile."""
    with data_folder.owned(settings):
        async with open_database(settings.database) as database:
            yield People(database)


@asynccontextmanager
async def looked_into(settings: Settings) -> AsyncIterator[Overview]:
    """What can be told of the sprites of a data folder on which no bridge runs."""
    with data_folder.owned(settings):
        async with open_database(settings.database) as database:
            yield Overview(People(database), None, list, Ledger(database).spend, partial(stored, database))


@asynccontextmanager
async def host_alone(settings: Settings) -> AsyncIterator[Host]:
    """The host without a bridge around it, to deploy to."""
    with data_folder.owned(settings):
        async with (
            open_database(settings.database) as database,
            SpriteTokens(database) as tokens,
            _host(settings, tokens, settings.port) as host,
        ):
            yield host


async def _refuse_what_nobody_may(settings: Settings, people: People) -> None:
    """OperatorError where settings and the people who were added do not go together."""
    are_added = await people.any_added()
    if not settings.is_loopback and not are_added:
        raise OperatorError(
            f"On {settings.host} others could connect, and nobody was added who may come in. "
            "Add yourself first: python -m bridge users add NAME"
        )
    if settings.follow is not None and are_added:
        raise OperatorError(
            "--follow makes one person's sessions the local person's memory, and people were added here. Each of them "
            "can have theirs followed: python -m sprite follow --to THIS_BRIDGE --token-file FILE"
        )


def _application(lobby: Lobby, edge: Edge, routes: list[web.RouteDef]) -> web.Application:
    application = web.Application(middlewares=[lobby.middleware(), edge.middleware()], client_max_size=MAX_BODY_BYTES)
    application.on_response_prepare.extend((lobby.note, edge.add_headers))
    application.add_routes(routes)
    return application


def _host(settings: Settings, tokens: SpriteTokens, port: int) -> Host:
    """Where sprites live. OperatorError when the provider needs a setting that is not there."""
    environment = {**settings.environment, "SPRITE_OFFLINE": "1" if settings.uses_offline_model else ""}
    if settings.provider == "sprites":
        if settings.sprites_token is None:
            raise OperatorError(
                "--provider sprites needs SPRITES_TOKEN: the token of your organisation at sprites.dev."
            )
        if settings.public_url is None:
            raise OperatorError(
                "--provider sprites needs BRIDGE_PUBLIC_URL: the address at which VMs reach this bridge, such as "
                "https://sprite.example.org."
            )
        base_url = settings.public_url
        return SpritesHost(
            settings.sprites_token,
            Archive.of(_ROOT),
            _access(tokens, base_url),
            tokens.sprite_of,
            base_url=base_url,
            api_url=settings.sprites_url,
            egress=settings.egress,
            environment=environment,
        )
    # Sprites here come by loopback also where the bridge listens on every address.
    name = "127.0.0.1" if settings.host in {"0.0.0.0", "::"} else in_url(settings.host)  # noqa: S104
    return LocalHost(
        settings.workspaces,
        _access(tokens, f"http://{name}:{port}"),
        environment=environment,
        permissions=settings.permissions,
    )


@asynccontextmanager
async def _model_proxy(
    settings: Settings, tokens: SpriteTokens, budgets: Budgets, ledger: Ledger
) -> AsyncIterator[LlmProxy]:
    """What answers sprites' calls of the model, with what they spent before loaded."""
    async with AsyncExitStack() as stack:
        upstream = Upstream(settings.base_url, settings.api_key, settings.auth_token)
        if settings.uses_offline_model:
            upstream = Upstream((await stack.enter_async_context(OfflineModel())).url)
        models = Models(allowed=settings.models, is_free=settings.uses_offline_model)
        budgets.load(await ledger.spent())
        exits = Exits(settings.model_exits, settings.model_headers, settings.model_betas)
        yield await stack.enter_async_context(
            LlmProxy(upstream, tokens, models, budgets, ledger, RateLimits(), exits=exits)
        )


@dataclass(frozen=True, slots=True)
class _Notices:
    """What tells people who have no page open."""

    settings: Settings
    choices: NotifySettingsStore
    outbox: Outbox
    subscriptions: Subscriptions
    push_key: VapidKey
    push: Push
    webhook: Webhook | None
    notifier: Notifier
    tidings: Tidings

    def routes(self, doorkeeper: Doorkeeper, relay: Relay) -> list[web.RouteDef]:
        """The routes by which people choose what reaches them, and answer from a notification."""
        routes = PushRoutes(doorkeeper, self.push_key, self.subscriptions, self.push, relay)
        return [*SettingsRoutes(doorkeeper, self.choices).table(), *routes.table()]

    async def key(self) -> str:
        """The key that signs what the webhook is sent, as receivers take it."""
        return shown(self.settings.notify_key or await self.outbox.key())

    async def try_out(self, person: str) -> list[str]:
        """Tells a person that this is a test, by every way to them; the ways in words, none where there is none."""
        browsers = len(await self.subscriptions.of(person))
        ways = [] if self.webhook is None else ["the webhook"]
        if browsers:
            ways.append("one browser" if browsers == 1 else f"{browsers} browsers")
        if ways:
            key = f"test-{uuid.uuid4()}"
            self.notifier.tell(Notice(key, "ended", person, person, "This is a test", "It works.", time.time()))
        return ways

    async def trouble(self) -> str:
        """What an operator should know of, in words; "" where all is well."""
        return "" if self.webhook is None else await self.webhook.trouble()


@asynccontextmanager
async def _notices(
    settings: Settings, database: Database, people: People, on_death: Callable[[], None]
) -> AsyncIterator[_Notices]:
    async with AsyncExitStack() as stack:
        choices = NotifySettingsStore(database)
        subscriptions = Subscriptions(database, allow_inside=settings.push_inside)
        push_key = await kept_key(database, settings.public_url)
        push = await stack.enter_async_context(
            Push(push_key, subscriptions, choices.wants_words, allow_inside=settings.push_inside)
        )
        outbox, webhook = Outbox(database), None
        if settings.notify_url is not None:
            key = settings.notify_key or await outbox.key()
            webhook = await stack.enter_async_context(
                Webhook(settings.notify_url, key, outbox, choices.wants_words, on_death)
            )
        channels: list[Channel] = [push]
        if webhook is not None:
            channels.append(webhook)
        notifier = await stack.enter_async_context(
            Notifier(database, channels, choices.wants_words, people.may_come, on_death)
        )
        tidings = await stack.enter_async_context(Tidings(database, notifier, on_death))
        yield _Notices(settings, choices, outbox, subscriptions, push_key, push, webhook, notifier, tidings)


async def _for_local_person(settings: Settings, people: People, host: Host) -> str:
    """Lets the local person in, and their other programs on this machine know of their memory; the login token."""
    if isinstance(host, LocalHost) and settings.memory_note is not None:
        workspace = host.workspace(LOCAL_PERSON)
        memory_note.leave(settings.memory_note, workspace, _ROOT, takes_over=settings.data == default_data())
    return await people.local_link()


def _following(settings: Settings, host: Host) -> AbstractAsyncContextManager[object]:
    """What follows Claude Code's sessions for the local person, if it is to."""
    if settings.follow is None:
        return nullcontext()
    start_sprite = partial(host.deploy, LOCAL_PERSON, lambda _phase, _words: None)
    return Following(settings.workspaces / LOCAL_PERSON, settings.follow, settings.environment, start_sprite)


def _access(tokens: SpriteTokens, base_url: str) -> Access:
    async def access(sprite: str) -> ModelAccess:
        return ModelAccess(base_url, await tokens.rotate(sprite))

    return access


def _measured(
    visitors: Visitors, relay: Relay, proxy: LlmProxy, budgets: Budgets, waker: Waker, notices: _Notices
) -> Metrics:
    """The metrics, with what each part can tell when asked."""
    metrics = Metrics()
    metrics.add_gauge("bridge_websockets", "Open pages and terminals.", "person", visitors.counts)
    metrics.add_gauge(
        "bridge_sprites",
        "Sprites by the state of their link.",
        "state",
        lambda: Counter(seen.state for seen in relay.snapshot()),
    )
    metrics.add_counter("bridge_model_calls", "Model calls answered.", "status", proxy.answered)
    metrics.add_gauge("bridge_model_calls_open", "Model calls going on.", "sprite", proxy.in_flight)
    metrics.add_gauge(
        "bridge_spend_today_usd",
        "Spent since the UTC day began.",
        "sprite",
        lambda: {seen.sprite: budgets.spent(seen.sprite).today for seen in relay.snapshot()},
    )
    metrics.add_counter(
        "bridge_wakes", "Sprites woken for what is due, by how it ended.", "outcome", lambda: waker.wakes
    )
    metrics.add_counter(
        "bridge_notices", "What people were told who had no page open.", "kind", lambda: notices.notifier.told
    )
    if (webhook := notices.webhook) is not None:
        metrics.add_counter(
            "bridge_webhook_tries", "Posts to the webhook, by their end.", "outcome", lambda: webhook.sent
        )
    return metrics
