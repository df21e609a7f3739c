"""Fixtures of the page tests: one browser per worker.

A test opens its own windows, or uses those that its file shares.
"""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, Playwright, async_playwright

from tests.page_harness import CHROMIUM, PageStack, Wire, chromium, open_anew


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def driver() -> AsyncIterator[Playwright]:
    """Run Playwright's own process, which costs half a second of CPU time."""
    async with async_playwright() as playwright:
        yield playwright


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser(driver: Playwright) -> AsyncIterator[Browser]:
    async with chromium(driver) as browser:
        yield browser


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def whole_browser(driver: Playwright) -> AsyncIterator[Browser]:
    """Run a full Chromium with notifications and a viewer of PDF files."""
    async with chromium(driver, CHROMIUM) as browser:
        yield browser


# Opening a window takes a second of CPU time. A file whose tests share a window defines `stack`, its PageStack; each
# test finds the page as the previous one left it.


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def _page(stack: PageStack) -> AsyncIterator[Page]:
    async with stack.page() as page:
        yield page


@pytest_asyncio.fixture(loop_scope="session")
async def page(_page: Page, stack: PageStack, request: pytest.FixtureRequest) -> AsyncIterator[Page]:
    """Return the page shared by the tests of a file; a page error fails the test."""
    await _at_rest(_page, request)
    yield _page
    assert stack.complaints == []


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def _wire(stack: PageStack) -> AsyncIterator[Wire]:
    wire = Wire()
    async with stack.context() as context:
        await context.route_web_socket("**/ws", wire.route)
        wire.page = await stack.open(context)
        yield wire


@pytest_asyncio.fixture(loop_scope="session")
async def wire(_wire: Wire, request: pytest.FixtureRequest) -> AsyncIterator[Wire]:
    """Open a second window whose connection to the bridge the test controls."""
    await _at_rest(_wire.page, request)
    yield _wire
    _wire.pass_all()


async def _at_rest(page: Page, request: pytest.FixtureRequest) -> None:
    """Clear the leftovers of another test; after a failure they may be anything."""
    if request.session.testsfailed:
        await open_anew(page)
    else:
        # A toast covers the page below it, and stays while the pointer is over it.
        await page.locator("#toasts").evaluate("e => e.replaceChildren()")
