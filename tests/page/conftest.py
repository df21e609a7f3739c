"""One browser for each worker: each test opens windows of its own."""

from collections.abc import AsyncIterator

import pytest_asyncio
from playwright.async_api import Browser

from tests.page_harness import chromium


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Browser]:
    async with chromium() as browser:
        yield browser
