"""The page's explanations and offers when an agent does not start, was restored, or no bridge admits the client."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, ViewportSize, WebSocketRoute, expect

from tests.page_harness import PageStack, needs_chromium, page_stack, shoot

pytestmark = [needs_chromium(), pytest.mark.asyncio(loop_scope="session")]

#: 2026-11-22 13:20 UTC.
AT = 1_795_353_600.0
OLDER = (
    "Your agent has less data than its replica here, or another memory: its machine was reset to an earlier day, or it "
    "was restored elsewhere. Its replica is as of 2026-11-22 13:20 UTC. Nothing new is stored here until you choose: "
    "restore the replica, or continue with the agent as it is now."
)
WAYS = {
    "choose": ("ready", OLDER, "Choose", "Which version should continue?"),
}
WIDE: ViewportSize = {"width": 1280, "height": 800}
PHONE: ViewportSize = {"width": 360, "height": 740}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stack(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> AsyncIterator[PageStack]:
    async with page_stack(browser, tmp_path_factory.mktemp("words"), "--permissions", "bypass") as found:
        yield found
        # The browser also logs requests that the bridge refuses, which is no error of the page.
        refused = [f"status of {status}" for status in (409, 502, 503)]
        assert [each for each in found.complaints if not any(words in each for words in refused)] == []


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def page(stack: PageStack) -> AsyncIterator[Page]:
    """Open one window for all tests. It loads the page itself."""
    async with stack.context() as context:
        page = await context.new_page()
        stack.watch(page)
        yield page


async def told(page: Page) -> Callable[[str], None]:
    """Tell a real page of a real bridge this state of its agent, after all else: no test waits three minutes.

    Return a function that sets the offers which the page gets from its next load on.
    """
    chosen = next(iter(WAYS))

    def choose(offer: str) -> None:
        nonlocal chosen
        chosen = offer

    def between(page_side: WebSocketRoute) -> None:
        bridge_side = page_side.connect_to_server()

        def pass_on(message: str | bytes) -> None:
            page_side.send(message)
            if json.loads(message)["type"] == "state_sync":
                state, words, _, _ = WAYS[chosen]
                payload: dict[str, Any] = {"state": state, "detail": words, "offer": chosen, "as_of": AT}
                page_side.send(json.dumps({"type": "link", "id": "offer", "timestamp": 0, "payload": payload}))

        bridge_side.on_message(pass_on)

    await page.route_web_socket("**/ws", between)
    return choose


async def is_whole(page: Page) -> None:
    """Check that none of the text is cut off."""
    assert await page.locator(".run-words").evaluate("e => e.scrollHeight <= e.clientHeight + 1")


async def test_offer_is_shown_whole_and_confirmed_first(stack: PageStack, page: Page) -> None:
    choose = await told(page)
    for offer, (state, words, label, title) in WAYS.items():
        choose(offer)
        await page.set_viewport_size(WIDE)
        await page.goto(stack.bridge.url)
        await expect(page.locator(".run-words")).to_have_text(words)
        button = page.get_by_role("button", name=label, exact=True)
        for name, viewport in (("wide", WIDE), ("narrow", PHONE)):
            await page.set_viewport_size(viewport)
            await is_whole(page)
            await expect(button).to_be_in_viewport(ratio=1)
            await expect(page.get_by_role("textbox", name="Message")).to_be_in_viewport(ratio=1)
            await shoot(page, f"{offer}-{name}")
        await expect(page.locator(".link-words")).to_have_text("Connected" if state == "ready" else "Unreachable")
        await button.click()
        dialog = page.get_by_role("dialog", name=title)
        await expect(dialog).to_be_visible()
        await shoot(page, f"{offer}-asks")
        # Enter triggers nothing irreversible.
        await page.keyboard.press("Enter")
        await expect(dialog).to_be_hidden()


async def test_page_explains_refused_admission(stack: PageStack, page: Page) -> None:
    words = (
        "Your agent cannot be reached now. The bridge that has your agent does not trust this one: whoever runs the "
        "bridges must set the same BRIDGE_CLUSTER_SECRET on each."
    )
    await page.set_viewport_size(PHONE)
    await page.route_web_socket("**/ws", lambda route: route.close())
    body = json.dumps({"error": {"code": "not_believed", "message": words}})
    await page.route("**/ws/why", lambda route: route.fulfill(status=502, content_type="application/json", body=body))
    await page.goto(stack.bridge.url)
    await expect(page.locator(".run-words")).to_contain_text("BRIDGE_CLUSTER_SECRET")
    await is_whole(page)
    await shoot(page, "not-believed")

    away = json.dumps({"error": {"code": "database_away", "message": "The database is unreachable. Nothing is lost."}})
    await page.route(
        f"{stack.bridge.url}/",
        lambda route: route.fulfill(status=503, content_type="application/json", body=away),
    )
    await expect(page.locator(".run-words")).to_contain_text("The database is unreachable. Nothing is lost.")
