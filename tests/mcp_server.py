"""MCP servers on this machine, honest and others: `python mcp_server.py MODE` on stdio, or `serving(...)` over HTTP.

In the modes `hang`, `die` and `flood` the tool `misbehave` does that; `noisy` floods from its start.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvicorn
from mcp.server.auth.provider import AccessToken, AuthorizationCode, AuthorizationParams, RefreshToken
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl

SCRIPT = str(Path(__file__).resolve())


def server(mode: str = "honest", tools: int = 0, **options: Any) -> MCPServer:
    """Return a server with five tools, and so many more."""
    made = MCPServer("loopback", log_level="CRITICAL", **options)

    @made.tool(description="Say the same words again.")
    def echo(words: str) -> str:
        return words

    @made.tool(description="Return the server's variables.")
    def reveal() -> str:
        return "\n".join(f"{name}={value}" for name, value in os.environ.items())

    @made.tool(description="List a folder.")
    def look(folder: str) -> str:
        return "\n".join(entry.name for entry in Path(folder).iterdir())

    @made.tool(description="Connect to a port of this machine.")
    def dial(port: int) -> str:
        with socket.create_connection(("127.0.0.1", port), 1):
            return "connected"

    @made.tool(description="Do what the mode says.")
    async def misbehave() -> str:
        if mode == "hang":
            await asyncio.sleep(3600)
        if mode == "die":
            os._exit(3)
        return "x" * 50_000_000 if mode == "flood" else mode

    for number in range(tools):
        made.add_tool(echo, name=f"tool_{number}", description=f"Look up the record {number} in the ledger.")
    return made


class House:
    """An authorization server in memory: whoever asks is let in."""

    def __init__(self) -> None:
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.refreshing: dict[str, RefreshToken] = {}
        self.access: dict[str, AccessToken] = {}

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        self.clients[client_info.client_id] = client_info

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        code = secrets.token_urlsafe(16)
        self.codes[code] = AuthorizationCode(
            code=code,
            scopes=[],
            expires_at=time.time() + 60,
            client_id=client.client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
        )
        return f"{params.redirect_uri}?code={code}&state={params.state}"

    async def load_authorization_code(self, _client: object, code: str) -> AuthorizationCode | None:
        return self.codes.get(code)

    async def exchange_authorization_code(self, client: OAuthClientInformationFull, _code: object) -> OAuthToken:
        return self._made(client.client_id)

    async def load_refresh_token(self, _client: object, token: str) -> RefreshToken | None:
        return self.refreshing.get(token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, _scopes: list[str]
    ) -> OAuthToken:
        del self.refreshing[refresh_token.token]
        return self._made(client.client_id)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.access.get(token)

    def _made(self, client_id: str) -> OAuthToken:
        access, refresh = f"access-{secrets.token_hex(16)}", f"refresh-{secrets.token_hex(16)}"
        self.access[access] = AccessToken(token=access, client_id=client_id, scopes=[])
        self.refreshing[refresh] = RefreshToken(token=refresh, client_id=client_id, scopes=[])
        return OAuthToken(access_token=access, refresh_token=refresh, expires_in=3600)


class Tokens:
    """Accept one bearer token."""

    def __init__(self, token: str) -> None:
        self.token = token

    async def verify_token(self, token: str) -> AccessToken | None:
        return AccessToken(token=token, client_id="test", scopes=[]) if token == self.token else None


@asynccontextmanager
async def serving(made: MCPServer | Callable[[str], MCPServer]) -> AsyncIterator[str]:
    """Serve over Streamable HTTP in this loop, and yield the URL, from which the server may be made."""
    listener = socket.create_server(("127.0.0.1", 0))
    # asyncio sets it only where the protocol is named; each answer would take 40 ms longer.
    listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    base = f"http://127.0.0.1:{listener.getsockname()[1]}"
    app = (made if isinstance(made, MCPServer) else made(base)).streamable_http_app()
    running = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="on", timeout_graceful_shutdown=1))
    task = asyncio.create_task(running._serve([listener]))
    try:
        yield f"{base}/mcp"
    finally:
        running.should_exit = True
        await task


def with_token(token: str, *, mode: str = "honest", tools: int = 0) -> MCPServer:
    """Return a server that wants this token."""
    settings = AuthSettings(issuer_url=AnyHttpUrl("http://127.0.0.1:1"), resource_server_url=None)
    made = server(mode, tools, token_verifier=Tokens(token), auth=settings)
    made.add_tool(lambda: f"You sent Bearer {token}", name="leak", description=f"Say again {token}.")
    return made


def with_login(house: House) -> Callable[[str], MCPServer]:
    """Return a maker of a server that wants a login at this house."""

    def make(base: str) -> MCPServer:
        settings = AuthSettings(
            issuer_url=AnyHttpUrl(base),
            resource_server_url=AnyHttpUrl(f"{base}/mcp"),
            client_registration_options=ClientRegistrationOptions(enabled=True),
            validate_token_resource=False,
        )
        return server(auth_server_provider=house, auth=settings)

    return make


if __name__ == "__main__":
    while sys.argv[1] == "noisy":
        sys.stdout.write('{"jsonrpc": "2.0", "method": "notifications/message", "params": {}}\n')
    server(sys.argv[1]).run("stdio")
