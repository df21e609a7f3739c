"""One browser for each worker. A test opens windows of its own, or uses those that the tests of its file share."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, Playwright, async_playwright

from tests.page_harness import CHROMIUM, PageStack, Wire, chromium, open_anew


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def driver() -> AsyncIterator[Playwright]:
    """Playwright's own process, which costs half a second of a core."""
    async with async_playwright() as playwright:
        yield playwright


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser(driver: Playwright) -> AsyncIterator[Browser]:
    async with chromium(driver) as browser:
        yield browser


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def whole_browser(driver: Playwright) -> AsyncIterator[Browser]:
    """Chromium with a window's parts: notifications, and a viewer of PDF files."""
    async with chromium(driver, CHROMIUM) as browser:
        yield browser


# To open a window takes a second of a core. A file whose tests share one defines `stack`, its PageStack; each of its
# tests finds the page where the one before left it.


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def _page(stack: PageStack) -> AsyncIterator[Page]:
    async with stack.page() as page:
        yield page


@pytest_asyncio.fixture(loop_scope="session")
async def page(_page: Page, stack: PageStack, request: pytest.FixtureRequest) -> AsyncIterator[Page]:
    """The page that the tests of a file share; it may not complain."""
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
    """A second window, with its wire to the bridge in the test's hands."""
    await _at_rest(_wire.page, request)
    yield _wire
    _wire.pass_all()


async def _at_rest(page: Page, request: pytest.FixtureRequest) -> None:
    """Clears away what another test has left: after a failure that may be anything."""
    if request.session.testsfailed:
        await open_anew(page)
    else:
        # A toast lies over what is below it, and stays while the pointer is there.
        await page.locator("#toasts").evaluate("e => e.replaceChildren()")
