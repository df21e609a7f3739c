"""Logins that begin at one bridge and end at another, behind one address: by the provider, and by a passkey."""

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
    """Two bridges, and what stands before them: `at` says to which of them browsers come."""

    proxy: ChaosProxy
    ports: list[int]
    settings: list[Settings]
    url: str

    def at(self, number: int) -> None:
        self.proxy.target = self.ports[number]

    @asynccontextmanager
    async def browser(self) -> AsyncIterator[aiohttp.ClientSession]:
        # Each request is a connection of its own, and may go elsewhere.
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


async def test_a_login_that_one_bridge_begins_another_one_ends_and_it_is_good_at_both(
    tmp_path: Path, postgres_url: str
) -> None:
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
        # What was answered at one of them is answered at all.
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

        # Taken off at one of them, they open neither, and browsers that came in by them are out at both.
        (person,) = (each["name"] for each in (await house.asked(0, "GET", "/users"))["users"] if each["sessions"])
        ways = await house.asked(1, "GET", f"/users/{person}/identities")
        await house.asked(1, "DELETE", f"/users/{person}/passkeys/{ways['passkeys'][0]['id']}")
        for browser in (ada, anew):
            house.at(0)
            async with browser.get(f"{house.url}/passkeys") as response:
                assert response.status == 401
        _, options = await post(anew, "/login/passkey/options", 0)
        assert (await post(anew, "/login/passkey", 1, device.signed(options)))[0] == 400
