"""The files that a turn changed, below its reply: counted, shown with diffs and previews, and undone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.harness import PATIENCE
from tests.page_harness import PageStack, ask, needs_chromium, page_stack, shoot, violations

pytestmark = [pytest.mark.asyncio(loop_scope="session"), needs_chromium()]

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
COMMAND = f"cd documents; printf 'one\\n2\\nthree\\n' > list.txt; rm old.txt; echo {PIXEL} | base64 -d > pixel.png"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stack(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> AsyncIterator[PageStack]:
    """Run one bridge and browser; the agent works without asking."""
    step = {"match": "tidy up", "tool": "Bash", "input": {"command": COMMAND}, "on": "prompt"}
    folder = tmp_path_factory.mktemp("page")
    async with page_stack(browser, folder, "--permissions", "bypass", steps=[step]) as stack:
        yield stack
        assert stack.complaints == []


async def test_changed_files_are_shown_and_undone(stack: PageStack, page: Page) -> None:
    documents = stack.workspace / "documents"
    await ask(page, "Hello there.")
    (documents / "list.txt").write_text("one\ntwo\nthree\n")
    (documents / "old.txt").write_text("old\n")
    since = stack.workspace / ".os/undo"
    async with asyncio.timeout(PATIENCE):
        while not since.is_dir():  # noqa: ASYNC110 - the sprite makes it
            await asyncio.sleep(0.02)
    # The next turn takes the person's files into account.
    await ask(page, "Hello again.")
    await ask(page, "Now tidy up, please.")
    row = page.locator(".exchange", has_text="tidy up").locator("details.changes")
    await expect(row.locator("summary")).to_contain_text("3 files changed")
    await row.locator("summary").click()
    await expect(row.locator(".change-line.removed")).to_have_text(["-two", "-old"])
    await expect(row.locator(".change-line.added")).to_have_text(["+2"])
    await expect(row.get_by_alt_text("documents/pixel.png after")).to_have_js_property("naturalWidth", 1)
    await row.scroll_into_view_if_needed()
    assert await violations(page) == []
    await shoot(page, "changes")
    (documents / "list.txt").write_text("mine\n")
    await row.get_by_role("button", name="Undo", exact=True).click()
    await expect(row).to_contain_text("changed again since then: not restored")
    await expect(row.locator("summary")).to_contain_text("partly undone")
    assert (documents / "old.txt").read_text() == "old\n"
    assert not (documents / "pixel.png").exists()
    assert (documents / "list.txt").read_text() == "mine\n"
    await shoot(page, "changes-conflict")
    await row.get_by_role("button", name="Restore documents/list.txt anyway").click()
    await expect(row).not_to_contain_text("not restored")
    assert (documents / "list.txt").read_text() == "one\ntwo\nthree\n"
    await page.reload()
    await expect(row.locator("summary")).to_contain_text("undone")
    await row.locator("summary").click()
    await expect(row.locator(".change-list").get_by_text("undone")).to_have_count(3)
    await expect(row.get_by_role("button", name="Undo")).to_have_count(0)
    await row.get_by_role("button", name="Redo").click()
    async with asyncio.timeout(PATIENCE):
        while (documents / "list.txt").read_text() != "mine\n":  # noqa: ASYNC110 - the sprite writes it
            await asyncio.sleep(0.02)
