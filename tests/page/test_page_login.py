"""Another person's login link, opened by a real browser."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.bridge_harness import Bridge, running_bridge
from tests.page_harness import PATIENCE_MS, needs_chromium

pytestmark = [needs_chromium(), pytest.mark.asyncio(loop_scope="session")]


async def test_foreign_login_link_asks_before_switching_person(tmp_path: Path, browser: Browser) -> None:
    """Logged out as well as logged in, and without scripts: no sprite has to start for it."""
    async with running_bridge(tmp_path / "data") as bridge:
        link = await link_of(bridge, "ada")
        context = await browser.new_context(java_script_enabled=False)
        context.set_default_timeout(PATIENCE_MS)
        page = await context.new_page()
        await page.goto(link)
        await expect(page.get_by_role("heading", name="Log in as ada?")).to_be_visible()
        assert await context.cookies() == []
        await page.get_by_role("button", name="Log in as ada").click()
        await expect(page).to_have_url(f"{bridge.url}/")
        (before,) = await context.cookies()

        link = await link_of(bridge, "bob")
        await page.goto(link)
        await expect(page.get_by_role("heading", name="Log in as somebody else?")).to_be_visible()
        await page.get_by_role("link", name="Stay ada").click()
        await expect(page).to_have_url(f"{bridge.url}/")
        assert await context.cookies() == [before]

        await page.goto(link)
        await page.get_by_role("button", name="Continue as bob").click()
        await expect(page).to_have_url(f"{bridge.url}/")
        (after,) = await context.cookies()
        assert after["value"] != before["value"]
        _, listed, _ = await bridge.run("users", "list")
        # Of the logins of local, ada and bob only the last one is left.
        assert [line.split()[-2] for line in listed.splitlines()] == ["0", "0", "1"]
        await context.close()


async def link_of(bridge: Bridge, name: str) -> str:
    """Return the login link of a new person."""
    _, printed, _ = await bridge.run("users", "add", name)
    return next(word for word in printed.split() if "/login?token=" in word)
