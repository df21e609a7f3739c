"""An agent whose machine is lost is offered on the page, and restored by a button."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from tests.harness import PATIENCE
from tests.page_harness import PageStack, needs_chromium, page_stack, shoot, violations

pytestmark = [needs_chromium(), pytest.mark.asyncio(loop_scope="session")]


@pytest_asyncio.fixture(loop_scope="session")
async def stack(tmp_path: Path, browser: Browser) -> AsyncIterator[PageStack]:
    async with page_stack(browser, tmp_path, "--permissions", "bypass") as found:
        yield found
        assert found.complaints == []


async def until_stored(stack: PageStack) -> None:
    """Wait until the bridge has replicated all of the agent."""
    async with asyncio.timeout(PATIENCE):
        while json.loads((await stack.bridge.run("status", "--json"))[1])[0]["store_behind"] != 0:  # noqa: ASYNC110 - as it says
            await asyncio.sleep(0.2)


async def test_lost_machine_is_offered_and_restored_by_button(stack: PageStack) -> None:
    async with stack.context() as context:
        page = await stack.open(context)
        # Not valid text, so an archive cannot contain it.
        (stack.workspace / os.fsdecode(b"odd<b>\xff.txt")).write_text("odd")
        with closing(sqlite3.connect(stack.workspace / ".os/workspace.db")) as chat, chat:
            said = ("user", "My dog is Pim.", 1.0, "m1")
            chat.execute("INSERT INTO chat_messages (role, text, at, mission_id) VALUES (?, ?, ?, ?)", said)
        # A change by the sprite itself makes it replicate everything.
        async with stack.bridge.page(stack.cookie, resume={}) as client:
            await client.link("ready")
            await client.ask("memory", {"op": "edit", "name": "user.md", "content": "# User\n"})
        await until_stored(stack)
        await stack.stop_bridge()
        shutil.rmtree(stack.workspace)
        await stack.start_bridge()
        await expect(page.locator(".run-words")).to_contain_text("The machine of this agent is gone")
        restore = page.get_by_role("button", name="Restore")
        await expect(restore).to_be_visible()
        await expect(page.get_by_role("button", name="Try now")).to_be_hidden()
        await shoot(page, "gone")
        await restore.click()
        dialog = page.get_by_role("dialog", name="Restore your agent?")
        await expect(dialog).to_contain_text("until today")
        assert await violations(page) == []
        await shoot(page, "gone-asks")
        await dialog.get_by_role("button", name="Cancel").click()
        assert not stack.workspace.exists()
        await restore.click()
        await dialog.get_by_role("button", name="Restore").click()
        restored = (
            "Your agent is restored. Left out, because they are unreadable or have an unusable name: "
            r"odd<b>\xff.txt: its name is no text."
        )
        await expect(page.locator(".toast")).to_contain_text(restored)
        await expect(restore).to_be_hidden()
        await expect(page.locator(".run-state")).to_have_attribute("data-kind", "idle")
        await expect(page.locator(".thread-list")).to_contain_text("Pim")
