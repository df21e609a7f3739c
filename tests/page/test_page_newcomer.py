"""The first minutes of a newcomer: install the wheel, talk, see what was learned and why, forget it, and restart."""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from tests.page_harness import ask, needs_chromium, ready, shoot, violations
from tests.ports import free_port
from tests.wheel import installed_command, start

pytestmark = [needs_chromium(), pytest.mark.asyncio(loop_scope="session")]


class Installed:
    """The installed command, and its running bridge."""

    def __init__(self, folder: Path) -> None:
        self.home = folder / "home"
        self.home.mkdir()
        self._command = installed_command(folder)
        self._port = free_port()
        self._process: subprocess.Popen[str] | None = None

    def run(self) -> str:
        """Start `sprite run` and return the address that it prints."""
        self._process = start(self._command, self.home, "run", "--port", str(self._port))
        assert self._process.stdout is not None
        return self._process.stdout.readline().split()[-1]

    def stop(self) -> int:
        """Press Ctrl-C and return the exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)
        self._process.communicate()
        return self._process.returncode

    def kill(self) -> None:
        """End what a failed test left."""
        if self._process is not None and self._process.poll() is None:
            self.stop()


@pytest_asyncio.fixture(loop_scope="session")
async def installed(tmp_path: Path) -> AsyncIterator[Installed]:
    found = await asyncio.to_thread(Installed, tmp_path)
    yield found
    await asyncio.to_thread(found.kill)


async def test_newcomer_finds_the_way(installed: Installed, browser: Browser) -> None:
    """From nothing to the first *Why?*, a reminder, a forget and a restart, without a setting."""
    address = await asyncio.to_thread(installed.run)
    async with await browser.new_context(reduced_motion="reduce", service_workers="block") as context:
        page = await context.new_page()
        await page.goto(address)
        await ready(page)
        await expect(page.get_by_role("button", name="Demo model")).to_be_visible()

        await ask(page, "Hi, my name is Ada and I prefer tea. Make a table of apples 3, pears 5")
        await expect(page.get_by_role("cell", name="pears")).to_be_visible()

        await ask(page, "Remind me tomorrow at 9 to call Bo")
        await page.get_by_role("tab", name="To do").click()
        await expect(page.get_by_role("listitem").filter(has_text="call Bo")).to_contain_text("tomorrow 9:00")

        await page.get_by_role("button", name="New session").click()
        learned = page.locator(".notice.learned")
        await expect(learned).to_contain_text("prefers tea")
        await learned.get_by_role("listitem").filter(has_text="prefers tea").get_by_role("button", name="Why?").click()
        preference = page.get_by_role("article").filter(has_text="prefers tea")
        await expect(preference).to_contain_text("I prefer tea")
        await expect(preference).to_contain_text("you said it")
        await shoot(page, "newcomer-why")
        assert await violations(page) == []

        await preference.get_by_role("button", name="Forget").click()
        await page.get_by_role("dialog").get_by_role("button", name="Forget").click()
        done = page.get_by_role("dialog", name="Forgotten")
        await expect(done).to_contain_text("No store contains it any more.")
        await done.get_by_role("button", name="Close").click()

        assert await asyncio.to_thread(installed.stop) == 0
        await expect(page.locator(".link-words")).to_have_text("Reconnecting")
        await asyncio.to_thread(installed.run)
        await ready(page)
        await page.reload()
        await ready(page)
        await ask(page, "What do you remember about me?")
        reply = page.locator(".thread-list .exchange").last
        await expect(reply).to_contain_text("name is Ada")
        await expect(reply).not_to_contain_text("tea")
        await expect(learned).to_contain_text("name is Ada")
