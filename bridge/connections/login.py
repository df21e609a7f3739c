"""OAuth of a connection by the `mcp` library; imported with `server`, at the first use of a connection."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from typing import TypeVar
from urllib.parse import parse_qs, urlsplit

from mcp.client.auth import OAuthClientProvider
from mcp.shared.auth import (
    AuthorizationCodeResult,
    OAuthClientInformationFull,
    OAuthClientMetadata,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)
from pydantic import AnyUrl, BaseModel

from bridge.connections.server import LoginNeededError
from bridge.connections.store import Definition, Login

_M = TypeVar("_M", bound=BaseModel)
#: A client that never logs in needs a redirect URI, too.
_NOWHERE = "http://127.0.0.1/connections/callback"


class Flow:
    """A login that a person has begun: `url` is where they log in, `code` what they bring back."""

    def __init__(self, redirect_uri: str) -> None:
        self.redirect_uri = redirect_uri
        self.task: asyncio.Task[None] | None = None
        loop = asyncio.get_running_loop()
        self.url: asyncio.Future[str] = loop.create_future()
        self.code: asyncio.Future[AuthorizationCodeResult] = loop.create_future()

    def is_about(self, state: str) -> bool:
        """Return whether the `state` that the browser brought back belongs to this login."""
        if not self.url.done() or self.code.done():
            return False
        asked = parse_qs(urlsplit(self.url.result()).query).get("state", [""])[0]
        return bool(asked) and secrets.compare_digest(asked.encode(), state.encode())


def provider(definition: Definition, save: Callable[[], Awaitable[None]], flow: Flow | None) -> OAuthClientProvider:
    """Return the OAuth of requests to a server; `save` stores new tokens. Without a flow it raises LoginNeededError."""
    login = definition.login = definition.login or Login()

    async def lead(url: str) -> None:
        if flow is None or flow.url.done():
            raise LoginNeededError
        flow.url.set_result(url)

    async def answer() -> AuthorizationCodeResult:
        if flow is None:
            raise LoginNeededError
        return await flow.code

    metadata = OAuthClientMetadata(
        client_name="Sprite", redirect_uris=[AnyUrl(_NOWHERE if flow is None else flow.redirect_uri)]
    )

    async def keep() -> None:
        login.server, login.resource = _written(context.oauth_metadata), _written(context.protected_resource_metadata)
        login.expires_at = context.token_expiry_time
        definition.hold_secrets()
        await save()

    storage = _Kept(login, keep, is_new=flow is not None)
    made = OAuthClientProvider(definition.url, metadata, storage, lead, answer)
    # The library keeps these for the life of a process only, and cannot refresh without them.
    context = made.context
    context.oauth_metadata = _parsed(OAuthMetadata, login.server)
    context.protected_resource_metadata = resource = _parsed(ProtectedResourceMetadata, login.resource)
    if resource is not None and resource.authorization_servers:
        context.auth_server_url = str(resource.authorization_servers[0])
    if flow is None:
        context.token_expiry_time = login.expires_at
    return made


class _Kept:
    """Keep tokens and registration for the `mcp` library. Each login registers anew: its redirect URI may differ."""

    def __init__(self, login: Login, keep: Callable[[], Awaitable[None]], *, is_new: bool) -> None:
        self._login = login
        self._keep = keep
        self._is_new = is_new

    async def get_tokens(self) -> OAuthToken | None:
        return None if self._is_new else _parsed(OAuthToken, self._login.tokens)

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self._login.tokens = tokens.model_dump_json(exclude_none=True)
        self._is_new = False
        await self._keep()

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return None if self._is_new else _parsed(OAuthClientInformationFull, self._login.client)

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self._login.client = client_info.model_dump_json(exclude_none=True)


def _parsed(type_: type[_M], text: str | None) -> _M | None:
    return None if text is None else type_.model_validate_json(text)


def _written(value: BaseModel | None) -> str | None:
    return None if value is None else value.model_dump_json(exclude_none=True)
