"""OAuth at `/mcp`: the official MCP client requests access, and a person grants or refuses it in a browser."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from tests.bridge_harness import Bridge, running_bridge
from tests.harness import PATIENCE
from tests.mcp_browser import REDIRECT, Browser, Kept, program
from tests.mcp_client import called, mcp_client

# The import is slow, so tests import it locally.
if TYPE_CHECKING:
    import httpx2

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="bridge")
async def bridge_(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bridge]:
    async with running_bridge(tmp_path_factory.mktemp("oauth") / "data") as bridge:
        yield bridge


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="cookie")
async def cookie_(bridge: Bridge) -> str:
    return await bridge.login()


async def test_person_grants_client_selected_scopes(bridge: Bridge, cookie: str) -> None:
    browser, kept = Browser(bridge, cookie, ["memory:read"]), Kept()
    async with mcp_client(bridge, program(browser, kept, "Ada <b>Editor</b>")) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert names == ["search_memory", "around", "read_memory", "list_actions"]
        assert (await called(client, "search_memory", query="anything"))[0] is False
        refused, words, _ = await called(client, "ask_sprite", text="Hello")
        assert refused
        assert "it lacks the scope ask" in words
    assert browser.ticks() == {"memory:read": True, "actions": True, "ask": False}
    assert "<b>Editor" not in browser.pages[0]
    assert "Ada &lt;b&gt;Editor&lt;/b&gt;" in browser.pages[0]
    assert "127.0.0.1:49152" in browser.pages[0]
    assert kept.tokens is not None
    assert kept.tokens.scope == "memory:read"
    _, listed, _ = await bridge.run("users", "tokens", "local")
    assert "Ada bEditorb" in listed


def form(**fields: str) -> dict[str, str]:
    return fields


async def token_request(bridge: Bridge, **fields: str) -> tuple[int, dict[str, str]]:
    """Post to the token endpoint; return (status, body)."""
    import httpx2

    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        answer = await http.post(f"{bridge.url}/mcp/token", data=fields)
        body: dict[str, str] = answer.json()
        return answer.status_code, body


async def opens(bridge: Bridge, token: str) -> int:
    """Return the status of `/mcp` for a token."""
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    headers = {"Authorization": f"Bearer {token}", "Accept": "application/json, text/event-stream"}
    async with bridge.http() as session, session.post("/mcp", json=ping, headers=headers) as response:
        return response.status


async def let_in(bridge: Bridge, cookie: str, name: str) -> tuple[Kept, str, str]:
    """Authorize a client; return its storage, access token and refresh token."""
    browser, kept = Browser(bridge, cookie, ["memory:read"]), Kept()
    async with mcp_client(bridge, program(browser, kept, name)) as client:
        await client.list_tools()
    assert kept.tokens is not None
    assert kept.tokens.refresh_token is not None
    return kept, kept.tokens.access_token, kept.tokens.refresh_token


async def test_reused_refresh_token_revokes_grant(bridge: Bridge, cookie: str) -> None:
    kept, access, refresh = await let_in(bridge, cookie, "Refresher")
    assert kept.info is not None
    asked = form(grant_type="refresh_token", client_id=kept.info.client_id)
    status, renewed = await token_request(bridge, **asked, refresh_token=refresh)
    assert status == 200, renewed
    assert await opens(bridge, renewed["access_token"]) == 200, "the new token is not accepted"
    assert (await token_request(bridge, **asked, refresh_token="bridge-refresh-wrong"))[1]["error"] == "invalid_grant"
    status, refused = await token_request(bridge, **asked, refresh_token=refresh)
    assert (status, refused["error"]) == (400, "invalid_grant")
    for token in (access, renewed["access_token"]):
        assert await opens(bridge, token) == 401
    assert (await token_request(bridge, **asked, refresh_token=renewed["refresh_token"]))[0] == 400
    assert "Refresher" not in (await bridge.run("users", "tokens", "local"))[1]


async def test_oauth_grant_can_be_revoked(bridge: Bridge, cookie: str) -> None:
    kept, access, refresh = await let_in(bridge, cookie, "Ended")
    assert kept.info is not None
    assert await opens(bridge, access) == 200
    assert (await bridge.run("users", "revoke-token", "local", "Ended"))[0] == 0
    assert await opens(bridge, access) == 401
    asked = form(grant_type="refresh_token", client_id=kept.info.client_id, refresh_token=refresh)
    assert (await token_request(bridge, **asked))[1]["error"] == "invalid_grant"


async def registered(bridge: Bridge, *uris: str) -> tuple[int, dict[str, str]]:
    """Register a client; return (status, body)."""
    import httpx2

    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        told = {"client_name": "Odd", "redirect_uris": list(uris), "token_endpoint_auth_method": "none"}
        answer = await http.post(f"{bridge.url}/mcp/register", json=told)
        body: dict[str, str] = answer.json()
        return answer.status_code, body


CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(b"v" * 50).digest()).decode().rstrip("=")


async def authorize(bridge: Bridge, known: str, /, **changes: str) -> httpx2.Response:
    """Request an authorization link without following redirects."""
    import httpx2

    fields = form(
        response_type="code",
        client_id=known,
        redirect_uri=REDIRECT,
        code_challenge=CHALLENGE,
        code_challenge_method="S256",
        state="s",
        resource=f"{bridge.url}/mcp",
    )
    async with httpx2.AsyncClient(timeout=PATIENCE) as http:
        return await http.get(f"{bridge.url}/mcp/authorize", params=fields | changes)


async def test_codes_are_single_use_and_redirects_registered(bridge: Bridge, cookie: str) -> None:
    for uri in (
        "javascript:alert(1)",
        "http://evil.example/cb",
        "https://a@b.example/",
        "https://a.example/#x",
        "data:x",
        "cursor://anysphere/callback",
    ):
        status, refused = await registered(bridge, uri)
        assert (status, refused["error"]) == (400, "invalid_redirect_uri"), uri
    status, known = await registered(bridge, REDIRECT, "com.anysphere.cursor://callback")
    assert status == 201, known
    client_id = known["client_id"]
    for changes in (
        {"redirect_uri": "http://127.0.0.1:49152/other"},
        {"redirect_uri": "http://127.0.0.1.evil.example:49152/callback"},
        {"redirect_uri": "https://evil.example/callback"},
        {"client_id": "nobody"},
    ):
        answer = await authorize(bridge, client_id, **changes)
        assert answer.status_code == 400, changes
        assert "Location" not in answer.headers
    for changes, error in (
        ({"resource": "https://other.example/mcp"}, "invalid_target"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"code_challenge": "short"}, "invalid_request"),
        ({"scope": "everything"}, "invalid_scope"),
    ):
        answer = await authorize(bridge, client_id, **changes)
        assert answer.status_code == 302, changes
        assert answer.headers["Location"].startswith(f"{REDIRECT}?error={error}"), changes
    # An invalid request never redirects to a remote address or a custom scheme (open redirect).
    afar = (await registered(bridge, "https://evil.example/cb?a=b", "com.evil://127.0.0.1/cb"))[1]["client_id"]
    for uri in ("https://evil.example/cb?a=b", "com.evil://127.0.0.1/cb"):
        answer = await authorize(bridge, afar, redirect_uri=uri, scope="everything")
        assert (answer.status_code, answer.json()["error"]) == (400, "invalid_scope")
        assert "Location" not in answer.headers
        answer = await authorize(bridge, afar, redirect_uri=uri)
        assert answer.headers["Location"].startswith("/mcp/consent?request=")
    # Loopback redirects may use any port (RFC 8252).
    url = str((await authorize(bridge, client_id, redirect_uri="http://127.0.0.1:50001/callback")).request.url)
    browser = Browser(bridge, cookie, ["memory:read"])
    await browser.open(url)
    code = (await browser.came_back()).code
    asked = form(
        grant_type="authorization_code",
        client_id=client_id,
        code=code,
        redirect_uri="http://127.0.0.1:50001/callback",
        code_verifier="v" * 50,
    )
    for wrong in ({"code_verifier": "w" * 50}, {"redirect_uri": REDIRECT}, {"code": "x"}, {"client_id": "y"}):
        assert (await token_request(bridge, **(asked | wrong)))[0] in {400, 401}, wrong
    assert (await token_request(bridge, **asked))[0] == 200
    assert (await token_request(bridge, **asked))[1]["error"] == "invalid_grant"


async def test_consent_requires_logged_in_person(bridge: Bridge, cookie: str) -> None:
    """A missing login, a foreign origin, an unknown request or a refusal grants nothing."""
    import httpx2

    client_id = (await registered(bridge, REDIRECT))[1]["client_id"]
    asked = f"{bridge.url}{(await authorize(bridge, client_id)).headers['Location']}"
    headers = {"Accept": "text/html", "Content-Type": "application/x-www-form-urlencoded"}
    async with httpx2.AsyncClient(timeout=PATIENCE, headers=headers) as http:
        assert (await http.get(asked)).status_code == 401
        shown = await http.get(asked, headers={"Cookie": cookie})
        assert shown.status_code == 200
        policy = shown.headers["Content-Security-Policy"]
        assert "form-action 'self' http://127.0.0.1:49152;" in policy
        assert "frame-ancestors 'none'" in policy
        yes = "scope=memory:read"
        assert (await http.post(asked, content=yes, headers={"Cookie": cookie})).status_code == 403
        evil = {"Cookie": cookie, "Origin": "https://evil.example"}
        assert (await http.post(asked, content=yes, headers=evil)).status_code == 403
        assert (await http.post(asked, content=yes, headers={"Origin": bridge.url})).status_code == 401
        good = {"Cookie": cookie, "Origin": bridge.url}
        assert (await http.get(f"{asked}x", headers=good)).status_code == 400
        for large in ("x" * 5_000, "scope=ask&" * 30):
            assert (await http.post(asked, content=large, headers=good)).status_code == 413
        for no in ("refused=yes&scope=memory:read", "", "scope=observe"):
            answer = await http.post(asked, content=no, headers=good)
            assert answer.headers["Location"].startswith(f"{REDIRECT}?error=access_denied"), no


async def test_remote_bridge_without_https_disables_oauth(tmp_path: Path) -> None:
    async with (
        running_bridge(tmp_path / "data", BRIDGE_PUBLIC_URL="http://sprite.lan:8080") as bridge,
        bridge.http() as session,
    ):
        async with session.post("/mcp") as response:
            assert response.status == 401
            assert response.headers["WWW-Authenticate"] == "Bearer"
        async with session.get("/.well-known/oauth-authorization-server") as response:
            assert response.status == 404
            assert "users token" in (await response.json())["error"]["message"]
