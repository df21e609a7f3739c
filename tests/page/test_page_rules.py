"""Rules about tool calls in the page: written, accepted, stopping, overridden and retired."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.harness import observations
from tests.page_harness import PageStack, ask, needs_chromium, page_stack, shoot, violations

pytestmark = [pytest.mark.asyncio(loop_scope="session"), needs_chromium()]

RULE = 'stop when command "touch": Make no files.'


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stack(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> AsyncIterator[PageStack]:
    """Run one bridge and browser; the agent works without asking."""
    step = {"match": "make it", "tool": "Bash", "input": {"command": "touch made"}, "on": "prompt", "times": -1}
    folder = tmp_path_factory.mktemp("page")
    async with page_stack(browser, folder, "--permissions", "bypass", steps=[step]) as stack:
        yield stack
        assert stack.complaints == []


async def test_rule_is_written_accepted_and_overridden(stack: PageStack, page: Page) -> None:
    await ask(page, "Please make it.")
    (stack.workspace / "made").unlink()
    await page.get_by_role("button", name="Settings").click()
    await page.get_by_role("button", name="Rules…").click()
    dialog = page.get_by_role("dialog", name="Rules")
    await expect(dialog).to_contain_text("No rules yet")
    await dialog.get_by_label("New rule").fill("stop everything")
    await dialog.get_by_role("button", name="Check it").click()
    await expect(dialog.get_by_role("alert")).to_contain_text("begins with")
    await dialog.get_by_label("New rule").fill(RULE)
    await dialog.get_by_role("button", name="Check it").click()
    await expect(dialog).to_contain_text("It would have stopped 1 of 1 past call")
    await expect(dialog).to_contain_text("touch made")
    await shoot(page, "rules")
    assert await violations(page) == []
    await dialog.get_by_role("button", name="Make it a rule").click()
    await expect(dialog.get_by_role("button", name="Retire")).to_be_visible()
    await dialog.get_by_role("button", name="Close").click()
    await expect(page.locator(".toast")).to_have_count(0)

    await ask(page, "Now make it again.")
    toast = page.locator(".toast", has_text="Stopped by your rule of")
    await expect(toast).to_contain_text("Make no files.")
    await shoot(page, "rules-stopped")
    assert not (stack.workspace / "made").exists()
    await toast.get_by_role("button", name="Let it run once").click()
    await expect(page.locator(".toast", has_text="may run once")).to_be_visible()
    await ask(page, "And make it once more.")
    assert (stack.workspace / "made").exists()
    await page.get_by_role("button", name="Settings").click()
    await page.get_by_role("button", name="Rules…").click()
    await dialog.get_by_role("button", name="Change").click()
    await shoot(page, "rules-change")
    field = dialog.get_by_label("Changed rule")
    await expect(field).to_have_value(RULE)
    await field.fill(RULE.replace('"touch"', '"touch" or "mkdir"'))
    await dialog.get_by_role("button", name="Check it").click()
    await dialog.get_by_role("button", name="Make it a rule").click()
    # Until it is accepted, the offer stands beside the rule that it replaces.
    await expect(dialog.get_by_role("button", name="Make it a rule")).to_have_count(0)
    await expect(dialog.get_by_role("button", name="Retire")).to_have_count(1)
    await expect(dialog).to_contain_text("mkdir")
    await dialog.get_by_role("button", name="Retire").click()
    await expect(dialog).to_contain_text("No rules yet")
    await dialog.get_by_role("button", name="Close").click()


async def test_wish_in_chat_is_offered_with_its_words(stack: PageStack, page: Page) -> None:
    wish = "As a rule, never shred anything"
    await ask(page, wish)
    turn = len(observations(stack.workspace))
    rule = f'RULE [t{turn}] stop when command "shred": Shred nothing. | "{wish}"'
    stack.model.script.curator({"raw_text": f'PREFERENCE [t{turn}] Shred nothing. | "{wish}"\n{rule}'})
    await page.get_by_role("tab", name="Memory").click()
    await page.get_by_role("button", name="Learn now").click()
    toast = page.locator(".toast", has_text="Make it a rule? Shred nothing.")
    await toast.get_by_role("button", name="Look").click()
    dialog = page.get_by_role("dialog", name="Rules")
    await expect(dialog).to_contain_text(f"You said: “{wish}”")
    await dialog.get_by_role("button", name="No: stop when").click()
    await expect(dialog).to_contain_text("No rules yet")
    await dialog.get_by_role("button", name="Close").click()
    await expect(toast).to_have_count(0)
