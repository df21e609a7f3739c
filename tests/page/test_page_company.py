"""The operator page and passkeys in a real browser: by keyboard, on a phone, and checked with axe."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, expect

from bridge.config import Settings
from bridge.replicas.sealed_store import open_store
from tests.bridge_harness import Bridge, running_bridge
from tests.page_harness import PATIENCE_MS, needs_chromium, violations
from tests.shipping_by_hand import ship

pytestmark = [needs_chromium(), pytest.mark.asyncio(loop_scope="session")]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def bridge(curated: Path, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bridge]:
    """Run a bridge with ada's agent, which has a replica as well."""
    data = tmp_path_factory.mktemp("company") / "data"
    shutil.copytree(curated, data / "workspaces/ada")
    async with open_store(Settings(data), None) as store:
        await ship(store, "ada", curated)
    async with running_bridge(data) as bridge:
        await bridge.run("users", "add", "ada")
        yield bridge


async def login_link(bridge: Bridge) -> str:
    _, link, _ = await bridge.run("users", "link", "local")
    return link.strip()


async def log_in(context: BrowserContext, bridge: Bridge) -> None:
    name, _, value = (await bridge.login(await login_link(bridge))).partition("=")
    await context.add_cookies([{"name": name, "value": value, "url": bridge.url}])


async def test_operator_page_fits_phone(bridge: Bridge, browser: Browser) -> None:
    context = await browser.new_context(viewport={"width": 360, "height": 740}, reduced_motion="reduce")
    context.set_default_timeout(PATIENCE_MS)
    async with context:
        await log_in(context, bridge)
        page = await context.new_page()
        complaints: list[str] = []
        page.on("console", lambda said: complaints.append(said.text) if said.type == "error" else None)
        await page.goto(f"{bridge.url}/operator")
        await expect(page.get_by_role("heading", name="ada", exact=True)).to_be_visible()
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth")

        await expect(page.get_by_role("row", name="users add ada")).to_be_visible()
        assert await violations(page) == []
        assert complaints == []


async def test_passkey_is_created_used_and_removed(bridge: Bridge, browser: Browser) -> None:
    # Browsers bind passkeys to host names.
    url = bridge.url.replace("127.0.0.1", "localhost")
    context = await browser.new_context(reduced_motion="reduce", service_workers="block")
    context.set_default_timeout(PATIENCE_MS)
    async with context:
        await log_in(context, bridge)
        page = await context.new_page()
        device = await context.new_cdp_session(page)
        await device.send("WebAuthn.enable")
        options = {"protocol": "ctap2", "transport": "internal", "hasResidentKey": True, "hasUserVerification": True}
        made = await device.send("WebAuthn.addVirtualAuthenticator", {"options": {**options, "isUserVerified": True}})

        await page.goto(f"{bridge.url}/passkeys")
        await expect(page.get_by_text(f"{url}/passkeys")).to_be_visible()
        await expect(page.get_by_role("button", name="Add a passkey")).to_have_count(0)

        await page.goto((await login_link(bridge)).replace(bridge.url, url))
        await page.get_by_role("button", name="Search and commands").click()
        await page.keyboard.type("passkeys")
        await page.get_by_role("option", name="Passkeys: log in without a link").click()
        await expect(page).to_have_url(f"{url}/passkeys")
        assert await violations(page) == []
        await page.get_by_label("Name of this device").fill("Ada's <laptop>")
        await page.get_by_role("button", name="Add a passkey").press("Enter")
        await expect(page.get_by_text("Ada's <laptop>")).to_be_visible()
        await expect(page.get_by_text("never used")).to_be_visible()
        # One device creates a passkey.
        await page.get_by_role("button", name="Add a passkey").click()
        await expect(page.get_by_role("status")).to_have_text("This device has a passkey already.")

        await context.clear_cookies()
        await page.goto(f"{url}/operator")
        await page.get_by_role("link", name="Log in with a passkey").click()
        assert await violations(page) == []
        # Without user verification, the login is refused.
        seen = {"authenticatorId": made["authenticatorId"], "isUserVerified": False}
        await device.send("WebAuthn.setUserVerified", seen)
        await page.get_by_role("button", name="Log in with a passkey").click()
        await expect(page.get_by_role("status")).to_contain_text("Nothing was done")
        await device.send("WebAuthn.setUserVerified", {**seen, "isUserVerified": True})
        await page.get_by_role("button", name="Log in with a passkey").press("Enter")
        await expect(page).to_have_url(f"{url}/operator")
        await expect(page.get_by_role("heading", name="Recent actions of operators")).to_be_visible()
        await page.goto(f"{url}/passkeys")
        await expect(page.get_by_text("last used")).to_be_visible()
        await page.get_by_role("button", name="Remove Ada's <laptop>").press("Enter")
        await expect(page.get_by_text("You have no passkeys yet.")).to_be_visible()
        await context.clear_cookies()
        await page.goto(f"{url}/login/passkey")
        await page.get_by_role("button", name="Log in with a passkey").click()
        await expect(page.get_by_role("status")).to_contain_text("This passkey is unknown here")
