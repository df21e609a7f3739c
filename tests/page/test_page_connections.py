"""Connections on the page, with a real MCP server and a real browser."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.mcp_server import serving, with_token
from tests.page_harness import PageStack, needs_chromium, page_stack, shoot, violations

pytestmark = [needs_chromium(), pytest.mark.asyncio(loop_scope="session")]

TOKEN = "sesame-0123456789"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stack(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> AsyncIterator[PageStack]:
    async with page_stack(browser, tmp_path_factory.mktemp("connections")) as found:
        yield found
        assert found.complaints == []


@pytest_asyncio.fixture(loop_scope="session")
async def page(stack: PageStack) -> AsyncIterator[Page]:
    async with stack.page() as page:
        yield page


async def test_connection_is_added_agreed_and_removed(page: Page) -> None:
    made = with_token(TOKEN)
    async with serving(made) as url:
        await page.get_by_role("button", name="Settings").click()
        await page.get_by_role("button", name="Connections…").click()
        dialog = page.get_by_role("dialog", name="Connections")
        await expect(dialog.get_by_text("No connections yet.")).to_be_visible()
        await dialog.get_by_label("Name").fill("loop")
        await dialog.get_by_label("Address").fill(url)
        await dialog.get_by_label("Token").fill(TOKEN)
        await dialog.get_by_role("button", name="Add").click()
        await expect(dialog.get_by_role("listitem")).to_contain_text("Connected")
        await expect(dialog.get_by_role("listitem")).to_contain_text("6 tools")
        # These agents act without asking.
        await expect(dialog.get_by_text("Off until you turn it on.")).to_be_visible()
        await dialog.get_by_role("button", name="Turn on").click()
        await expect(dialog.get_by_role("button", name="Turn off")).to_be_visible()
        await dialog.get_by_text("Pinned tools: 0").click()
        await dialog.get_by_label("echo").click()
        await expect(dialog.get_by_text("Pinned tools: 1")).to_be_visible()
        await dialog.get_by_label("echo").click()
        await expect(dialog.get_by_text("Pinned tools: 0")).to_be_visible()
        made.remove_tool("echo")
        made.add_tool(lambda words: words, name="echo", description="<b>Say</b> it.")
        await dialog.get_by_role("button", name="Test").click()
        await expect(dialog.get_by_text("<b>Say</b> it.")).to_be_visible()
        assert await violations(page) == []
        await shoot(page, "connections")
        await dialog.get_by_role("button", name="Agree").click()
        await expect(dialog.get_by_role("button", name="Agree")).to_have_count(0)
        await dialog.get_by_role("button", name="Remove loop").click()
        await expect(dialog.get_by_text("No connections yet.")).to_be_visible()
