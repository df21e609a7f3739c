"""Login with OpenID Connect: a real provider (npm: oidc-provider) on loopback, and a lying one."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urljoin, urlsplit

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web
from joserfc import jwt
from joserfc.jwk import RSAKey

from bridge.admin import control
from bridge.app import Bridge, running
from bridge.auth.oidc_provider import IdTokenError, Provider, ProviderError
from bridge.config import OidcSettings, Settings
from tests.harness import PATIENCE
from tests.oidc_house import SECRET, provider_for
from tests.ports import free_port

pytestmark = pytest.mark.asyncio(loop_scope="module")

HTML = {"Accept": "text/html"}


@dataclass
class Company:
    """A bridge in this process, with an OpenID Connect provider next to it."""

    bridge: Bridge
    settings: Settings

    async def is_now(self, **claims: object) -> None:
        """Set the account with which the provider logs in the next browser."""
        assert self.settings.oidc is not None
        async with (
            aiohttp.ClientSession() as session,
            session.post(f"{self.settings.oidc.issuer}/account", json=claims),
        ):
            pass

    @asynccontextmanager
    async def browser(self) -> AsyncIterator[Browser]:
        timeout = aiohttp.ClientTimeout(total=PATIENCE)
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(timeout=timeout, cookie_jar=jar, headers=HTML) as session:
            yield Browser(self.settings.public_url or "", session)

    async def asked(self, method: str, path: str, body: object = None) -> Any:
        """Send a request to the control socket, as the command line does."""
        async with control.control_session(self.settings.run) as session:
            return await control.ask(session, method, path, body)

    async def audit(self) -> list[tuple[str, str]]:
        """Return actor and action of each audit entry."""
        entries = (await self.asked("GET", "/audit?since=0"))["entries"]
        return [(entry["actor"], f"{entry['action']} {entry['subject']}") for entry in entries]

    def who(self, browser: Browser) -> str | None:
        """Return the person who is logged in in this browser."""
        cookies = {cookie.key: cookie.value for cookie in browser.session.cookie_jar}
        session = cookies.get(f"bridge-{self.settings.port}", "").rsplit(".", 2)[0]
        with closing(sqlite3.connect(self.settings.database)) as database:
            sql = "SELECT person FROM sessions WHERE id_sha256 = ?"
            row = database.execute(sql, (hashlib.sha256(session.encode()).digest(),)).fetchone()
        return None if row is None else row[0]


@dataclass
class Browser:
    """A browser that follows redirects by hand, so that a test can stop it anywhere."""

    url: str
    session: aiohttp.ClientSession

    async def get(self, path: str) -> tuple[int, str, str]:
        """Return status, Location (or an empty string) and text."""
        address = path if path.startswith("http") else self.url + path
        async with self.session.get(address, allow_redirects=False) as response:
            return response.status, response.headers.get("Location", ""), await response.text()

    async def callback(self, path: str = "/oidc/login") -> str:
        """Log in at the provider. Return the callback address that the provider redirects to."""
        address = self.url + path
        while not address.startswith(f"{self.url}/oidc/callback"):
            status, location, text = await self.get(address)
            assert status in {302, 303}, text
            address = urljoin(address, location)
        return address

    async def log_in(self, path: str = "/oidc/login") -> tuple[int, str, str]:
        """Log in completely."""
        return await self.get(await self.callback(path))


#: Run a bridge on a data folder, with these OpenID Connect settings.
OpenCompany = Callable[..., AbstractAsyncContextManager[Company]]


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="company")
async def _company() -> AsyncIterator[OpenCompany]:
    """Run one provider for all tests; each test runs its own bridge at the registered address."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"

    @asynccontextmanager
    async def company(data: Path, **oidc: Any) -> AsyncIterator[Company]:
        told = OidcSettings(issuer, "sprite", SECRET, **oidc)
        settings = Settings(data=data, port=port, public_url=url, oidc=told)
        async with running(settings, asyncio.Event().set) as bridge:
            yield Company(bridge, settings)

    async with provider_for(f"{url}/oidc/callback") as issuer:
        yield company


async def test_oidc_login_creates_person_and_returns_to_page(
    tmp_path: Path, company: OpenCompany, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "bridge")
    async with company(tmp_path / "data") as house, house.browser() as ada:
        status, _, text = await ada.get("/files/a?x=1")
        assert status == 401
        assert 'href="/oidc/login?to=/files/a%3Fx%3D1"' in text
        assert "Log in with 127.0.0.1" in text
        await house.is_now(sub="u-1", preferred_username="Ada.L", email="eve@example.org", email_verified=False)
        assert (await ada.log_in("/oidc/login?to=/files/a%3Fx%3D1"))[:2] == (303, "/files/a?x=1")
        assert house.who(ada) == "ada-l"
        assert (await ada.get("/"))[0] == 200
        # The subject identifies the person after a change of name; the login ends the previous session.
        left = {cookie.key: cookie.value for cookie in ada.session.cookie_jar}
        await house.is_now(sub="u-1", preferred_username="countess")
        for hostile in ("//evil.example", "/\\evil.example", "https://evil.example"):
            assert (await ada.log_in(f"/oidc/login?to={hostile}"))[:2] == (303, "/")
        assert house.who(ada) == "ada-l"
        async with aiohttp.ClientSession(cookies=left) as old, old.get(ada.url + "/") as response:
            assert response.status == 401
        assert await house.audit() == [("oidc", "users add ada-l")]
        # The exchange is not logged, and no token of the provider is stored.
        back = urlsplit(await ada.callback())
        secrets = [SECRET, *(value for values in parse_qs(back.query).values() for value in values)][:3]
        await ada.get(back.geturl())
        stored = b"".join(path.read_bytes() for path in house.settings.data.glob("bridge.db*"))
        logged = "".join(f"{record.getMessage()} {record.__dict__}" for record in caplog.records)
        assert "logged in by the provider" in logged
        assert not [secret for secret in secrets if secret in logged or secret.encode() in stored]


async def test_oidc_callback_is_browser_bound_and_single_use(tmp_path: Path, company: OpenCompany) -> None:
    async with company(tmp_path / "data") as house, house.browser() as ada, house.browser() as eve:
        await house.is_now(sub="u-1", preferred_username="ada")
        begun = await ada.callback()
        # Another browser, another login, and an invented state.
        for address in (begun, f"{begun}x", begun.replace("state=", "state=x")):
            assert (await eve.get(address))[0] == 400
        other = urlsplit(await eve.callback())
        code = parse_qs(urlsplit(begun).query)["code"][0]
        state = parse_qs(other.query)["state"][0]
        # Ada's code in Eve's login fails: it is bound to Ada's PKCE verifier and nonce.
        status, _, text = await eve.get(f"/oidc/callback?code={code}&state={state}")
        assert (status, house.who(eve)) == (400, None), text
        begun = await ada.callback()
        kept = {cookie.key: cookie.value for cookie in ada.session.cookie_jar}
        assert (await ada.get(begun))[0] == 303
        assert house.who(ada) == "ada"
        # Replay with the original cookie.
        async with aiohttp.ClientSession(cookies=kept) as again, again.get(begun, allow_redirects=False) as response:
            assert response.status == 400
            assert "used already" in await response.text()
        async with house.browser() as bob:
            wrong = (await bob.callback()) + "&iss=https://evil.example"
            assert (await bob.get(wrong.replace("&iss=http%3A", "&was=http%3A")))[0] == 400


async def test_oidc_groups_decide_access_and_role(tmp_path: Path, company: OpenCompany) -> None:
    groups = {"people": frozenset({"staff"}), "operators": frozenset({"admins"})}
    async with company(tmp_path / "data", **groups) as house, house.browser() as ada:
        await house.is_now(sub="u-1", preferred_username="ada", groups=["guests"])
        status, _, text = await ada.log_in()
        assert (status, house.who(ada)) == (403, None)
        assert "None of your groups" in text
        roles = []
        for said in (["admins"], ["staff"]):
            await house.is_now(sub="u-1", preferred_username="ada", groups=said)
            assert (await ada.log_in())[0] == 303
            roles.append({each["name"]: each["role"] for each in (await house.asked("GET", "/users"))["users"]})
        assert [role["ada"] for role in roles] == ["operator", "person"]
        assert await house.audit() == [
            *(("oidc", "users add ada"), ("oidc", "users role ada"), ("oidc", "users role ada"))
        ]


async def test_revoked_person_cannot_log_in_with_oidc(tmp_path: Path, company: OpenCompany) -> None:
    async with company(tmp_path / "data") as house, house.browser() as ada, house.browser() as eve:
        await house.asked("POST", "/users/bob")
        await house.is_now(sub="u-2", preferred_username="bob", email="bob@example.org", email_verified=True)
        assert (await eve.log_in())[0] == 303
        assert house.who(eve) == "bob-2"
        await house.is_now(sub="u-1", preferred_username="ada")
        await ada.log_in()
        await house.asked("DELETE", "/users/ada")
        assert house.who(ada) is None
        status, _, text = await ada.log_in()
        assert (status, house.who(ada)) == (403, None)
        assert "Your access was revoked" in text
        await house.is_now(sub="u-3", refuses=True)
        async with house.browser() as cyd:
            status, _, text = await cyd.log_in()
        assert status == 403
        assert "refused the login" in text


# --- a lying or missing provider ---

KEY = RSAKey.generate_key(2048, {"kid": "one", "use": "sig"})


@asynccontextmanager
async def lying(
    tokens: Callable[[str], web.Response], *, discovery: dict[str, Any] | None = None, keys: Sequence[RSAKey] = (KEY,)
) -> AsyncIterator[tuple[Provider, list[str], Callable[[float], None]]]:
    """Run a provider whose token endpoint answers with `tokens(issuer)`.

    Yield the client, the requested paths, and a function that advances the clock.
    """
    asked: list[str] = []
    at = [0.0]

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.path)
        if request.path == "/token":
            return tokens(issuer)
        if request.path == "/keys":
            return web.json_response({"keys": [key.as_dict(private=False) for key in keys]})
        names = {"authorization_endpoint": "/auth", "token_endpoint": "/token", "jwks_uri": "/keys"}
        found = {"issuer": issuer, **{name: issuer + path for name, path in names.items()}}
        return web.json_response({**found, **(discovery or {})})

    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        issuer = f"http://127.0.0.1:{runner.addresses[0][1]}"
        settings = OidcSettings(issuer, "sprite", SECRET)
        async with Provider(settings, "http://127.0.0.1:1/oidc/callback", lambda: at[0]) as provider:
            yield provider, asked, lambda seconds: at.__setitem__(0, at[0] + seconds)
    finally:
        await runner.cleanup()


def token(issuer: str, kid: str = "one", **claims: object) -> web.Response:
    now = int(time.time())
    said = {"iss": issuer, "aud": "sprite", "sub": "u-1", "nonce": "n", "iat": now, "exp": now + 60, **claims}
    return web.json_response({"id_token": jwt.encode({"alg": "RS256", "kid": kid}, said, KEY)})


async def test_id_token_for_other_login_is_rejected() -> None:
    async with lying(token) as (provider, _, _):
        assert (await provider.claims("c", verifier="v", nonce="n"))["sub"] == "u-1"
        with pytest.raises(IdTokenError, match="nonce"):
            await provider.claims("c", verifier="v", nonce="another")
    async with lying(lambda issuer: token(issuer, aud="another")) as (provider, _, _):
        with pytest.raises(IdTokenError, match="aud"):
            await provider.claims("c", verifier="v", nonce="n")


async def test_withdrawn_signing_key_expires_within_hour() -> None:
    keys = [KEY]
    async with lying(token, keys=keys) as (provider, asked, turn):
        await provider.claims("c", verifier="v", nonce="n")
        keys[:] = [RSAKey.generate_key(2048, {"kid": "two", "use": "sig"})]
        turn(3601)
        with pytest.raises(IdTokenError, match="unknown key"):
            await provider.claims("c", verifier="v", nonce="n")
        assert asked.count("/keys") == 2


async def test_unknown_signing_key_refetches_once_a_minute() -> None:
    async with lying(lambda issuer: token(issuer, kid="two")) as (provider, asked, turn):
        for _ in range(5):
            with pytest.raises(IdTokenError, match="unknown key"):
                await provider.claims("c", verifier="v", nonce="n")
        assert asked.count("/keys") == 1
        turn(61)
        for _ in range(5):
            with pytest.raises(IdTokenError):
                await provider.claims("c", verifier="v", nonce="n")
        assert asked.count("/keys") == 2
        assert sum(path.startswith("/.well-known") for path in asked) == 1


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda _: web.Response(body=b"x" * 10_000_000), "is too large"),
        (lambda _: web.Response(body=b"[" * 200_000), "is invalid"),
        (lambda _: web.json_response({"id_token": 7}), "is invalid"),
        (lambda _: web.json_response({}), "is invalid"),
        (lambda _: web.Response(status=500), "status 500"),
        (lambda _: web.Response(status=302, headers={"Location": "http://127.0.0.1:1/"}), "status 302"),
        (lambda _: web.json_response({"error": "invalid_client"}, status=401), "refuses the bridge"),
        (lambda _: web.json_response({"error": "invalid_grant"}, status=400), "no longer accepts"),
        (lambda _: web.Response(body=b"\xff\x00", status=400), "refused to say"),
    ],
)
async def test_invalid_token_response_raises_provider_error(answer: Callable[[str], web.Response], words: str) -> None:
    async with lying(answer) as (provider, _, _):
        with pytest.raises(ProviderError, match=words):
            await provider.claims("c", verifier="v", nonce="n")


@pytest.mark.parametrize(
    "discovery",
    [
        {"issuer": "https://evil.example"},
        {"token_endpoint": "http://evil.example/token"},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"jwks_uri": "file:///etc/passwd"},
        {"userinfo_endpoint": "http://192.0.2.1/"},
        {"jwks_uri": None},
    ],
)
async def test_invalid_discovery_document_is_rejected(discovery: dict[str, Any]) -> None:
    async with lying(token, discovery=discovery) as (provider, asked, _):
        with pytest.raises(ProviderError):
            await provider.login_address(state="s", nonce="n", verifier="v" * 43)
        assert "/token" not in asked


async def test_unreachable_provider_allows_login_by_link(tmp_path: Path) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    told = OidcSettings("http://127.0.0.1:1", "sprite", SECRET)
    settings = Settings(data=tmp_path / "data", port=port, public_url=url, oidc=told)
    async with running(settings, asyncio.Event().set) as bridge:
        house = Company(bridge, settings)
        async with house.browser() as ada:
            status, _, text = await ada.get("/oidc/login?to=/operator")
            assert status == 502
            assert "cannot log you in now" in text
            assert 'href="/oidc/login?to=/operator"' in text
            assert (await ada.get((await house.asked("POST", "/users/ada"))["link"]))[0] == 303
            assert house.who(ada) == "ada"
