"""One browser for each worker: each test opens windows of its own."""

from collections.abc import AsyncIterator

import pytest_asyncio
from playwright.async_api import Browser

from tests.page_harness import CHROMIUM, chromium


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as browser:
        yield browser


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def whole_browser() -> AsyncIterator[Browser]:
    """Chromium with a window's parts: notifications, and a viewer of PDF files."""
    async with chromium(CHROMIUM) as browser:
        yield browser
