"""The composition root: opens everything in order, listens, and closes in reverse order.

Start-up follows the order of entry. Shutdown starts out of order: WebSockets close first. Then sprites stop while the
model proxy still answers, because a sprite's last flush needs it. The listener, the ledger and the database follow.
"""

import asyncio
import logging
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import aiohttp
from aiohttp import web

from bridge.admin import control
from bridge.admin.operator_actions import Acts, Audit, Inside, Operations, people_of
from bridge.admin.operator_api import OperatorApi, OperatorPage, OwnRoutes, RunningApi
from bridge.admin.status import Overview, Running, slow_by_sprite
from bridge.api.routes import Doors
from bridge.auth.admission import Admission, OpenSockets, Revocations
from bridge.auth.login import Authenticator
from bridge.auth.passkey_store import Passkeys
from bridge.auth.passkeys import Asked, PasskeyDoor, PasskeyFlow, no_passkeys
from bridge.auth.people import ONLY_ALONE, People, login_link
from bridge.auth.sealed_cookie import Spent
from bridge.cluster.forward import Hops, RequestSigner
from bridge.cluster.leases import Leases
from bridge.cluster.ownership import Holder, Homes, Ownership, holders, this_machine
from bridge.config import DEFAULT_HOST, DEFAULT_PORT, LOCAL_PERSON, Settings
from bridge.connections.connections import Connections
from bridge.connections.routes import page_routes, sprite_key, sprite_routes
from bridge.connections.store import ConnectionStore
from bridge.db import data_folder
from bridge.db.database import Database, DatabaseError
from bridge.db.open import open_database
from bridge.errors import OperatorError
from bridge.fake_model.model import OfflineModel
from bridge.http.listening import ConnectionLimitMiddleware, bound, in_url, raise_file_limit, served
from bridge.hub.hub import Relay
from bridge.hub.room import Observer
from bridge.mcp.grants import Grants
from bridge.mcp.mount import Addresses, McpEntrance
from bridge.notify import webhook
from bridge.notify.notice import Channel
from bridge.notify.notifier import Notifier
from bridge.notify.push import Push, Subscriptions, VapidKey, kept_key
from bridge.notify.routes import NotifySettingsStore, PushRoutes
from bridge.notify.rules import NotificationRules
from bridge.notify.webhook import Webhook
from bridge.providers.child import Child, StartSprite
from bridge.providers.local import LocalHost
from bridge.providers.provider import Access, Host, HostError, ModelAccess
from bridge.proxy.accounts import Accounts, UnavailableError
from bridge.proxy.body import MAX_BODY_BYTES
from bridge.proxy.budgets import Limits
from bridge.proxy.calls import spend
from bridge.proxy.proxy import LlmProxy, RateLimits
from bridge.proxy.sprite_tokens import SpriteTokens
from bridge.proxy.upstream import ApiFeatures, Models, Upstream
from bridge.replicas.replicator import Replicator, standing
from bridge.replicas.restore import LostSprites, Restorer
from bridge.replicas.sealed_store import SealedStore, open_store
from bridge.routes.middleware import SecurityMiddleware
from bridge.routes.owner import OwnerRouter
from bridge.routes.routes import MAX_MESSAGE_BYTES, Readiness, Restoring, Routes
from bridge.telemetry.metrics import Metrics
from bridge.wakeups.waker import DueDates, Waker, stored
from sprite.common import own_secrets
from sprite.common.settings import default_data
from sprite.protocol.messages import ConnectionUpdate
from sprite.protocol.shapes import SlowKind

#: Code that is deployed to VMs stands beside the bridge package.
_ROOT = Path(__file__).resolve().parent.parent


log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Bridge:
    """A listening bridge. `login_token` belongs to the local person and is None once people were added."""

    url: str
    login_token: str | None

    @property
    def address(self) -> str:
        """Return the URL to open in a browser."""
        return self.url if self.login_token is None else login_link(self.url, self.login_token)


@asynccontextmanager
async def running(
    settings: Settings, on_death: Callable[[], None], *, start_sprite: StartSprite = Child.start
) -> AsyncIterator[Bridge]:
    """Run a bridge while the block runs; `start_sprite` starts local sprites.

    Raises OperatorError if it cannot start and FolderTakenError if another bridge owns the data folder. `on_death` is
    called when a task dies that the bridge cannot run without: end the block, which then raises TaskDiedError.
    """
    raise_file_limit()
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        stack.enter_context(data_folder.owned(settings))
        database = await enter(open_database(settings.database))
        people = people_of(settings, database)
        key = await _prepared(settings, people)
        listener = stack.enter_context(bound(settings.host, settings.port))
        port: int = listener.getsockname()[1]
        url = f"http://{in_url(settings.host)}:{port}"
        tokens = SpriteTokens(database)
        notices = await enter(_notices(settings, database, people, on_death))
        accounts, proxy = await enter(_model_calls(settings, database, tokens, notices.notification_rules, on_death))
        ownership, due = await enter(_ownership(settings, database, url, on_death))
        store = await enter(open_store(settings, database))
        host, restorer = _home(settings, database, store, tokens, ownership, port, key, start_sprite)
        relay, followers = await enter(_followed(store, host, restorer, ownership, due, notices, accounts, on_death))
        waker = Waker(relay, due, people.may_come, on_death)
        connections = await enter(_connections(settings, database, store, relay, on_death))
        open_sockets, addresses = OpenSockets(), Addresses(settings, port)
        readiness = Readiness(lambda: not accounts.is_behind)
        admission = Admission(people.tokens, lambda: readiness.is_ready)
        metrics = _measured(open_sockets, relay, proxy, accounts, waker, notices, followers)
        authenticator = Authenticator(settings, people, key, port)
        routes = Routes(settings, authenticator, people, open_sockets, host, relay, metrics, readiness)
        inside = Inside(admission, open_sockets, partial(_revoke_sprite, waker, tokens, connections))
        owner_router = await enter(_owner_router(settings, database, authenticator, ownership, inside, on_death))

        overview = Overview(
            people,
            accounts.spend,
            partial(stored, database),
            followers.standing,
            _held(settings, database),
            Running(host, relay.snapshot, waker.trouble, proxy.rate_limits.oldest),
        )
        operations = Operations(
            people,
            Acts(people, Audit(database), inside),
            host,
            ownership,
            overview,
            Restoring(restorer, relay, ownership),
            partial(login_link, settings.public_url or url),
        )
        api = RunningApi(operations, connections, partial(_webhook_key, database), routes, owner_router)
        lobby, doors = ConnectionLimitMiddleware(), Doors(admission, relay)
        company = await enter(_company_doors(settings, database, authenticator, open_sockets, operations.acts))
        mcp = McpEntrance(admission, authenticator, relay, Grants(database), key, addresses)
        application = _application(
            lobby,
            SecurityMiddleware(
                authenticator,
                metrics,
                is_secure=(settings.public_url or "").startswith("https:"),
                has_peers=owner_router is not None,
            ),
            [
                *doors.routes(proxy.list_models),
                *mcp.routes(),
                *sprite_routes(connections, tokens, key),
                *page_routes(connections, authenticator, addresses.base),
                *proxy.routes(),
                *notices.routes(authenticator, relay),
                web.post("/restore", operations.restoring.door(authenticator)),
                *company,
                *OperatorPage(authenticator, operations, connections).table(),
                *OwnRoutes(authenticator, api).table(),
                # The catch-all for the page's files comes last.
                *routes.table(),
            ],
            owner_router,
        )

        # The listener outlives the sprites, which outlive the connections to them.
        await enter(served(application, listener, on_death, lobby=lobby))
        await enter(_opened(host, restorer, ownership, due))
        await enter(_relayed(relay, host, followers))
        await enter(doors)
        await enter(mcp)
        await enter(waker)
        await enter(served(api.application(), stack.enter_context(control.listening_socket(settings.run)), on_death))
        stack.push_async_callback(_end_sockets, open_sockets, owner_router)

        readiness.is_ready = True
        data_folder.write_address(settings.run, settings.public_url or url)
        try:
            yield Bridge(url, await _for_local_person(settings, people, host))
        finally:
            readiness.is_ready = False


async def _raise_today(accounts: Accounts, sprite: str) -> bool:
    """Add one daily budget to a sprite's limit for today. Return False if the database cannot store that."""
    try:
        limit = await accounts.raise_today(sprite)
    except DatabaseError as error:
        log.warning("today's limit cannot be raised (%s)", error.code, extra={"sprite": sprite})
        return False
    log.info("today's limit was raised", extra={"sprite": sprite, "usd": limit})
    return True


@asynccontextmanager
async def _followed(
    store: SealedStore,
    host: Host,
    restorer: Restorer,
    ownership: Ownership,
    due: Observer,
    notices: "_Notices",
    accounts: Accounts,
    on_death: Callable[[], None],
) -> AsyncIterator[tuple[Relay, Replicator]]:
    """Yield the relay, not yet entered, and the replicator, which copies sprites' logs into the store meanwhile."""
    async with Replicator(store, on_death, restorer.losses.kept_words, notices.notifier.forget) as followers:
        relay = Relay(
            host,
            [due, notices.notification_rules, followers],
            is_unshipped=followers.is_unshipped,
            ownership=ownership,
            raise_today=partial(_raise_today, accounts),
        )
        accounts.warnings.listeners.append(relay.warn)
        followers.follow(relay.room_of)
        yield relay, followers


@asynccontextmanager
async def _relayed(relay: Relay, host: Host, followers: Replicator) -> AsyncIterator[None]:
    """Run the relay while the block runs. Then replicate local sprites until they stop, with their last curation."""
    async with relay:
        yield
        if isinstance(host, LocalHost):
            sprites = host.running()
            with ExitStack() as held:
                for sprite in sprites:
                    held.enter_context(relay.held(sprite))
                await followers.stop(sprites)


@asynccontextmanager
async def operated(settings: Settings) -> AsyncIterator[aiohttp.ClientSession]:
    """Yield a session with the operators' handlers in this process; owns a data folder on which no bridge runs."""
    url = data_folder.last_address(settings.run) or f"http://{DEFAULT_HOST}:{DEFAULT_PORT}"
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        stack.enter_context(data_folder.owned(settings))
        database = await enter(open_database(settings.database))
        tokens = SpriteTokens(database)
        ownership, _ = await enter(_ownership(settings, database, url, lambda: None))
        store = await enter(open_store(settings, database))
        people = people_of(settings, database)
        host, restorer = _home(settings, database, store, tokens, ownership, settings.port, await people.cookie_key())
        await enter(host)
        await enter(restorer)
        relay = Relay(host, ownership=ownership)
        overview = Overview(
            people,
            partial(spend, database),
            partial(stored, database),
            partial(standing, store),
            _held(settings, database),
        )
        operations = Operations(
            people,
            Acts(people, Audit(database)),
            host,
            ownership,
            overview,
            Restoring(restorer, relay, ownership),
            partial(login_link, settings.public_url or url),
        )
        connections = await enter(_connections(settings, database, store, relay, lambda: None))
        api = OperatorApi(operations, connections, partial(_webhook_key, database))
        # Other commands wait for the folder; they do not share this process.
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        listener = stack.enter_context(control.listening_socket(folder))
        await enter(served(api.application(), listener, lambda: None))
        yield await enter(control.control_session(folder))


async def _webhook_key(database: Database) -> str:
    """Return the webhook's signing key in the form that receivers take."""
    return webhook.shown(await webhook.kept_key(database))


def _held(settings: Settings, database: Database) -> Callable[[], Awaitable[dict[str, Holder]]] | None:
    """Return a function that lists which bridge owns each sprite; None if this is the only bridge."""
    return partial(holders, database) if _is_shared(settings) else None


async def _prepared(settings: Settings, people: People) -> bytes:
    """Prepare the register of people; return the key for cookies. OperatorError if settings and people contradict."""
    own_secrets.hold(*settings.secrets)
    await people.prepare()
    if settings.own_access and (not settings.is_alone or await people.any_added()):
        raise OperatorError(f"{ONLY_ALONE} Set ANTHROPIC_API_KEY instead.")
    if not settings.is_loopback and settings.oidc is None and not await people.any_added():
        raise OperatorError(
            f"Others could connect to {settings.host}, but no person has been added who may log in. Add "
            "yourself first: python -m bridge users add NAME"
        )
    return await people.cookie_key()


@asynccontextmanager
async def _owner_router(
    settings: Settings,
    database: Database,
    authenticator: Authenticator,
    ownership: Ownership,
    inside: Inside,
    on_death: Callable[[], None],
) -> AsyncIterator[OwnerRouter | None]:
    """Yield the router to the bridge that owns a person's sprite, or None if this is the only bridge."""
    if not _is_shared(settings):
        yield None
        return
    seal = None if settings.cluster_secret is None else RequestSigner(settings.cluster_secret)
    async with (
        Revocations(database, inside.open_sockets, inside.admission, on_death) as revocations,
        Hops(seal, max_message_bytes=MAX_MESSAGE_BYTES) as hops,
    ):
        yield OwnerRouter(authenticator, authenticator.people.tokens, ownership, hops, seal, revocations)


def _is_shared(settings: Settings) -> bool:
    """Return whether other bridges may use the same database."""
    return settings.database_url is not None


def _connections(
    settings: Settings, database: Database, store: SealedStore, relay: Relay, on_death: Callable[[], None]
) -> Connections:
    return Connections(
        ConnectionStore(database, store.keyring),
        settings.data,
        on_death,
        inside=settings.is_alone,
        tell=lambda person, found: relay.tell(person, ConnectionUpdate(found)),
    )


async def _revoke_sprite(waker: Waker, tokens: SpriteTokens, connections: Connections, name: str) -> None:
    """Cancel a sprite's wake-ups, revoke its model token, and end its person's sessions with MCP servers."""
    waker.forget(name)
    await tokens.revoke(name)
    await connections.end(name)


async def _end_sockets(open_sockets: OpenSockets, owner_router: OwnerRouter | None) -> None:
    """Close the WebSockets that end here, and the forwarded ones."""
    await asyncio.gather(open_sockets.end_all(), *(() if owner_router is None else (owner_router.hops.end_all(),)))


def _application(
    lobby: ConnectionLimitMiddleware,
    edge: SecurityMiddleware,
    routes: list[web.RouteDef],
    owner_router: OwnerRouter | None,
) -> web.Application:
    application = web.Application(middlewares=[lobby.around, edge.around], client_max_size=MAX_BODY_BYTES)
    application.on_response_prepare.extend((lobby.note, edge.add_headers))
    application.add_routes(routes if owner_router is None else owner_router.guarded(routes))
    return application


@asynccontextmanager
async def _ownership(
    settings: Settings, database: Database, url: str, on_death: Callable[[], None]
) -> AsyncIterator[tuple[Ownership, DueDates]]:
    """Yield the ownership of sprites and their due dates: leases if bridges share a database, else sole ownership."""
    if settings.database_url is None:
        ownership = Ownership()
        async with DueDates(database, on_death, ownership) as due:
            yield ownership, due
        return
    async with (
        # Leases get their own connection, so that renewals never wait for other queries. Its outages log at DEBUG
        # because the main connection already reports them.
        open_database(settings.database_url, level=logging.DEBUG) as own,
        Leases(own, settings.address or url, on_death) as leases,
        DueDates(database, on_death, leases) as due,
    ):
        yield leases, due


def _home(
    settings: Settings,
    database: Database,
    store: SealedStore,
    tokens: SpriteTokens,
    ownership: Ownership,
    port: int,
    key: bytes,
    start_sprite: StartSprite = Child.start,
) -> tuple[Host, Restorer]:
    """Return the sprites' host, not yet open, and the restorer. OperatorError if the provider lacks a setting."""
    losses = LostSprites(database, store)
    host: Host
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
        if settings.egress == "ask":
            raise OperatorError("On VMs nobody can be asked for a host: set SPRITE_EGRESS to open, packages or bridge.")
        # Importing it takes a fifth of the start, which bridges with local sprites need not pay.
        from bridge.providers.bootstrap import Archive
        from bridge.providers.sprites import SpritesHost, plan_of

        host = SpritesHost(
            settings.sprites_token,
            plan_of(Archive.of(_ROOT), settings.public_url, settings.egress or "open", settings.for_sprites),
            _access(tokens, settings.public_url, key),
            tokens.sprite_of,
            api_url=settings.sprites_url,
            guard=losses.refuse,
            epoch=ownership.epoch,
        )
    else:
        # Local sprites connect over loopback even if the bridge listens on all addresses.
        name = "127.0.0.1" if settings.host in {"0.0.0.0", "::"} else in_url(settings.host)  # noqa: S104
        host = LocalHost(
            settings.workspaces,
            _access(tokens, f"http://{name}:{port}", key),
            environment=settings.for_sprites,
            own_access=settings.own_access,
            permissions=settings.permissions,
            home=None if settings.database_url is None else Homes(database, this_machine()).path,
            guard=losses.refuse,
            start=start_sprite,
        )
    return host, Restorer(store, losses, host, settings.run, Audit(database).note)


@asynccontextmanager
async def _opened(host: Host, restorer: Restorer, ownership: Ownership, due: DueDates) -> AsyncIterator[None]:
    """Open the host while the block runs. Then release all sprites to other bridges, before slower shutdown steps."""
    try:
        async with host, restorer:
            yield
    finally:
        # The next owner of a sprite reads there whether it was at rest.
        await due.rows.flush()
        await ownership.give_all_back()


@asynccontextmanager
async def _model_calls(
    settings: Settings,
    database: Database,
    tokens: SpriteTokens,
    notification_rules: NotificationRules,
    on_death: Callable[[], None],
) -> AsyncIterator[tuple[Accounts, LlmProxy]]:
    """Yield the accounts for model calls and the proxy that answers them."""
    async with AsyncExitStack() as stack:
        limits = Limits(settings.daily_usd, settings.monthly_usd)
        used_up = notification_rules.budget_ended
        accounts = await stack.enter_async_context(
            Accounts(database, limits, used_up, shared=_is_shared(settings), on_death=on_death)
        )
        accounts.warnings.listeners.append(notification_rules.budget_nears)
        upstream = Upstream(settings.base_url, settings.api_key, settings.auth_token)
        if settings.uses_offline_model:
            upstream = Upstream((await stack.enter_async_context(OfflineModel())).url)
        models = Models(allowed=settings.models, is_free=settings.uses_offline_model)
        proxy = LlmProxy(upstream, tokens, models, accounts, RateLimits(), exits=ApiFeatures(settings.model_exits))
        yield accounts, await stack.enter_async_context(proxy)


@dataclass(frozen=True, slots=True)
class _Notices:
    """The parts of the bridge that notify people who have no page open."""

    choices: NotifySettingsStore
    subscriptions: Subscriptions
    push_key: VapidKey
    push: Push
    webhook: Webhook | None
    notifier: Notifier
    notification_rules: NotificationRules

    def routes(self, authenticator: Authenticator, relay: Relay) -> list[web.RouteDef]:
        """Return the routes for notification settings and for answers from a notification."""
        return PushRoutes(authenticator, self.choices, self.push_key, self.subscriptions, self.push, relay).table()


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
        hook, channels = None, list[Channel]([push])
        if settings.notify_url is not None:
            key = await webhook.kept_key(database)
            own_secrets.hold(key)
            hook = await stack.enter_async_context(Webhook(settings.notify_url, key, choices.wants_words))
            channels.append(hook)
        notifier = await stack.enter_async_context(
            Notifier(database, channels, choices.wants_words, people.may_come, on_death, shared=_is_shared(settings))
        )
        notification_rules = await stack.enter_async_context(
            NotificationRules(database, notifier, on_death, shared=_is_shared(settings))
        )
        yield _Notices(choices, subscriptions, push_key, push, hook, notifier, notification_rules)


async def _for_local_person(settings: Settings, people: People, host: Host) -> str | None:
    """Return the local person's login token (None: others log in here), and leave the note about their memory."""
    if settings.oidc is not None or await people.any_added():
        return None
    if isinstance(host, LocalHost) and settings.memory_note is not None:
        workspace = host.workspace(LOCAL_PERSON)
        data_folder.leave(settings.memory_note, workspace, _ROOT, takes_over=settings.data == default_data())
    return await people.local_link()


def _access(tokens: SpriteTokens, base_url: str, key: bytes) -> Access:
    async def access(sprite: str) -> ModelAccess:
        try:
            token = await tokens.rotate(sprite)
        except DatabaseError as error:
            raise HostError(f"The agent's token could not be stored: {error}") from error
        own_secrets.hold_passing(token)
        return ModelAccess(base_url, token, sprite_key(token, key))

    return access


def _measured(
    open_sockets: OpenSockets,
    relay: Relay,
    proxy: LlmProxy,
    accounts: Accounts,
    waker: Waker,
    notices: _Notices,
    followers: Replicator,
) -> Metrics:
    """Return the bridge's metrics, with figures from all its parts."""
    metrics = Metrics()
    metrics.add_gauge("bridge_websockets", "Open pages and terminals.", "person", open_sockets.counts)
    metrics.add_gauge(
        "bridge_sprites",
        "Sprites by the state of their link.",
        "state",
        lambda: Counter(seen.state for seen in relay.snapshot()),
    )
    metrics.add_counter("bridge_model_calls", "Model calls answered.", "status", proxy.answered)
    metrics.add_gauge("bridge_model_calls_open", "Model calls in flight.", "sprite", proxy.rate_limits.in_flight)

    kinds: list[SlowKind] = ["turn", "queue", "model_call"]
    for kind in kinds:
        metrics.add_gauge(
            f"bridge_slow_{kind}_seconds",
            f"Age of the oldest {kind.replace('_', ' ')} that takes longer than a minute.",
            "sprite",
            partial(_slow_ages, relay, proxy, kind),
        )

    async def by_sprite(figures: Callable[[], Awaitable[Mapping[str, float]]]) -> dict[str, float]:
        try:
            usd = await figures()
        except UnavailableError:
            # An unknown figure is left out.
            return {}
        return {seen.sprite: usd.get(seen.sprite, 0.0) for seen in relay.snapshot()}

    for name, words, figures in (
        ("bridge_spend_today_usd", "Spent since the UTC day began.", accounts.spent_today),
        (
            "bridge_spend_today_estimated_usd",
            "The part of it that is estimated, because the API did not report it.",
            partial(accounts.spent_today, only_estimates=True),
        ),
    ):
        metrics.add_awaited_gauge(name, words, "sprite", partial(by_sprite, figures))
    metrics.add_counter("bridge_wakes", "Wakes of sprites for due actions, by outcome.", "outcome", lambda: waker.wakes)
    metrics.add_counter(
        "bridge_notices",
        "Notifications to people without an open page, by kind.",
        "kind",
        lambda: notices.notifier.told,
    )
    if (hook := notices.webhook) is not None:
        metrics.add_counter("bridge_webhook_tries", "Posts to the webhook, by outcome.", "outcome", lambda: hook.sent)
    metrics.add_counter(
        "bridge_store_checks",
        "Checks of whole replicas, by outcome.",
        "outcome",
        lambda: followers.checks.outcomes,
    )
    metrics.add_gauge(
        "bridge_store_damaged_pieces",
        "Damaged or missing pieces of replicas.",
        "sprite",
        lambda: {sprite: count for sprite, count in followers.checks.damaged.items() if count},
    )
    return metrics


def _slow_ages(relay: Relay, proxy: LlmProxy, kind: SlowKind) -> dict[str, float]:
    found, now = slow_by_sprite(relay.snapshot(), proxy.rate_limits.oldest()), time.time()
    return {sprite: now - work.since for sprite, each in found.items() for work in each if work.kind == kind}


#: The actor of role changes that follow from a person's groups at the provider.
_PROVIDER = "oidc"


@asynccontextmanager
async def _company_doors(
    settings: Settings, database: Database, authenticator: Authenticator, open_sockets: OpenSockets, acts: Acts
) -> AsyncIterator[list[web.RouteDef]]:
    """Serve the configured login methods (OIDC, passkeys) while the block runs; yield their routes."""
    async with AsyncExitStack() as stack:
        routes: list[web.RouteDef] = []
        spent = Spent(database)
        if settings.oidc is not None:
            # Late import: cryptography takes a quarter of a second to load, and only a provider needs it.
            from bridge.auth.oidc import Begun, OidcDoor
            from bridge.auth.oidc_provider import Provider
            from bridge.auth.people import Identities

            provider = await stack.enter_async_context(Provider(settings.oidc, f"{settings.public_url}/oidc/callback"))
            cookie, identities = authenticator.sealed_cookie("oidc", Begun), Identities(database)
            change_role = partial(acts.change_role, _PROVIDER)
            note = acts.audit.note
            door = OidcDoor(provider, identities, authenticator, open_sockets, cookie, spent, change_role, note)
            routes += door.table()
        if authenticator.party is not None:
            flow = PasskeyFlow(Passkeys(database), authenticator.party, spent)
            sealed = authenticator.sealed_cookie("passkey", Asked)
            routes += PasskeyDoor(flow, authenticator, open_sockets, sealed).table()
        else:
            routes += no_passkeys()
        yield routes
