"""OIDC and passkey logins that start at one bridge and finish at another behind the same address."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
from yarl import URL

from bridge.admin import control
from bridge.app import running
from bridge.config import OidcSettings, Settings
from tests.authenticator import Authenticator
from tests.chaos_proxy import ChaosProxy
from tests.harness import PATIENCE
from tests.oidc_house import SECRET, provider_for


@dataclass
class Service:
    """Two bridges behind one proxy; `at` selects the bridge that receives requests."""

    proxy: ChaosProxy
    ports: list[int]
    settings: list[Settings]
    url: str

    def at(self, number: int) -> None:
        self.proxy.target = self.ports[number]

    @asynccontextmanager
    async def browser(self) -> AsyncIterator[aiohttp.ClientSession]:
        # Each request opens a new connection, so the next one can reach the other bridge.
        connector = aiohttp.TCPConnector(force_close=True)
        jar, timeout = aiohttp.CookieJar(unsafe=True), aiohttp.ClientTimeout(total=PATIENCE)
        async with aiohttp.ClientSession(
            connector=connector, cookie_jar=jar, timeout=timeout, headers={"Origin": self.url}
        ) as session:
            yield session

    async def asked(self, number: int, method: str, path: str, body: object = None) -> Any:
        async with control.control_session(self.settings[number].run) as session:
            return await control.ask(session, method, path, body)


@asynccontextmanager
async def service(tmp_path: Path, database: str) -> AsyncIterator[Service]:
    async with ChaosProxy(0, 0, 0) as proxy:
        url = f"http://localhost:{proxy.port}"
        async with provider_for(f"{url}/oidc/callback") as issuer:
            told = OidcSettings(issuer, "sprite", SECRET)
            every = [
                Settings(
                    data=tmp_path / name,
                    port=0,
                    public_url=url,
                    oidc=told,
                    database_url=database,
                    cluster_secret="what these two bridges share",
                )
                for name in ("a", "b")
            ]
            async with running(every[0], asyncio.Event().set) as a, running(every[1], asyncio.Event().set) as b:
                ports = [int(bridge.url.rpartition(":")[2]) for bridge in (a, b)]
                yield Service(proxy, ports, every, url)


async def test_login_across_bridges_works_at_both(tmp_path: Path, postgres_url: str) -> None:
    """A login may finish at the other bridge; challenges work once, and revocation holds at both bridges."""
    async with service(tmp_path, postgres_url) as house, house.browser() as ada, house.browser() as anew:
        house.at(0)
        address = f"{house.url}/oidc/login?to=/passkeys"
        while not address.startswith(f"{house.url}/oidc/callback"):
            async with ada.get(address, allow_redirects=False) as response:
                assert response.status in {302, 303}, await response.text()
                address = str(response.url.join(URL(response.headers["Location"])))
        house.at(1)
        async with ada.get(address, allow_redirects=False) as response:
            assert (response.status, response.headers["Location"]) == (303, "/passkeys"), await response.text()
        # The callback works once across all bridges.
        house.at(0)
        async with ada.get(address, allow_redirects=False) as response:
            assert response.status == 400
        for number in (0, 1):
            house.at(number)
            async with ada.get(f"{house.url}/passkeys") as response:
                assert response.status == 200

        async def post(browser: aiohttp.ClientSession, path: str, number: int, body: bytes = b"") -> tuple[int, bytes]:
            house.at(number)
            async with browser.post(house.url + path, data=body, allow_redirects=False) as response:
                return response.status, await response.read()

        device = Authenticator(origin=house.url)
        _, options = await post(ada, "/passkeys/options", 1)
        body = json.dumps({"answer": json.loads(device.made(options)), "label": "Phone"}).encode()
        assert (await post(ada, "/passkeys", 0, body))[0] == 201
        _, options = await post(anew, "/login/passkey/options", 0)
        answer = device.signed(options)
        assert (await post(anew, "/login/passkey", 1, answer))[0] == 204
        assert (await post(anew, "/login/passkey", 0, answer))[0] == 400

        # A person revoked at one bridge has no session or passkey at either.
        (person,) = (each["name"] for each in (await house.asked(0, "GET", "/users"))["users"] if each["sessions"])
        await house.asked(1, "DELETE", f"/users/{person}")
        for browser in (ada, anew):
            house.at(0)
            async with browser.get(f"{house.url}/passkeys") as response:
                assert response.status == 401
        _, options = await post(anew, "/login/passkey/options", 0)
        assert (await post(anew, "/login/passkey", 1, device.signed(options)))[0] == 400
