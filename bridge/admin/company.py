"""Login methods for organisations: an OpenID Connect provider, and passkeys."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from aiohttp import web

from bridge.admin.operator_actions import Acts
from bridge.auth.login import Arriving, Authenticator
from bridge.auth.passkey_store import Passkeys
from bridge.auth.passkeys import Asked, PasskeyDoor, PasskeyFlow, no_passkeys
from bridge.auth.sealed_cookie import Spent
from bridge.config import Settings
from bridge.db.database import Database

#: The actor of role changes that follow from a person's groups at the provider.
_PROVIDER = "oidc"


@asynccontextmanager
async def company_doors(
    settings: Settings, database: Database, authenticator: Authenticator, arriving: Arriving, acts: Acts
) -> AsyncIterator[list[web.RouteDef]]:
    """Yield the routes of the configured login methods, for before the catch-all; they work while the block runs."""
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
            door = OidcDoor(provider, identities, authenticator, arriving, cookie, spent, change_role, acts.audit.note)
            routes += door.table()
        if authenticator.party is not None:
            flow = PasskeyFlow(Passkeys(database), authenticator.party, spent)
            provider_name = "" if settings.oidc is None else settings.oidc.name
            sealed = authenticator.sealed_cookie("passkey", Asked)
            routes += PasskeyDoor(flow, authenticator, arriving, sealed, provider_name).table()
        else:
            routes += no_passkeys()
        yield routes
