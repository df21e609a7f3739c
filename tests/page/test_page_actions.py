"""What is to be done, on the page: added, changed, refused at its field, the same on every page; in a real browser."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, Page, expect

from tests.inspection import memory
from tests.page_harness import PageStack, ask, needs_chromium, page_stack, shoot, violations

pytestmark = [needs_chromium(), pytest.mark.asyncio(loop_scope="session")]

HERE = "Europe/Berlin"
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}},
}


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stack(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> AsyncIterator[PageStack]:
    async with page_stack(browser, tmp_path_factory.mktemp("actions"), "--permissions", "bypass") as found:
        yield found
        assert found.complaints == []


async def to_do(page: Page) -> Locator:
    """Opens the list; the panel."""
    await page.get_by_role("tab", name="Memory").locator("visible=true").click()
    panel = page.get_by_role("region", name="Memory")
    await panel.get_by_role("tab", name="To do").click()
    return panel


def action(stack: PageStack, words: str) -> dict[str, Any]:
    (found,) = memory(stack.workspace, "SELECT * FROM pending_actions WHERE content = ?", (words,))
    return found


async def test_an_action_is_added_refused_at_its_field_changed_and_seen_on_every_page(stack: PageStack) -> None:
    async with (
        stack.page(timezone_id=HERE, locale="en-GB") as page,
        stack.page(timezone_id="Asia/Tokyo", locale="en-GB") as second,
    ):
        panel, other = await to_do(page), await to_do(second)
        await expect(panel).to_contain_text("remind me on Tuesday at 9 to")
        await panel.get_by_role("button", name="Add something to do").click()
        form = panel.get_by_role("form", name="Something to do")
        await form.get_by_role("button", name="Add").click()
        await expect(form.get_by_role("alert")).to_have_text("Say what is to be done.")
        await form.get_by_label("What").fill("Water the ficus")
        await form.get_by_label("Day").fill("2020-01-01")
        await form.get_by_role("button", name="Add").click()
        await expect(form.get_by_role("alert")).to_contain_text("has passed already")
        await expect(form.get_by_label("Day")).to_be_focused()
        assert await violations(page) == []
        tomorrow = await page.evaluate("() => new Date(Date.now() + 86400000).toLocaleDateString('sv')")
        await form.get_by_label("Day").fill(tomorrow)
        await form.get_by_label("Time").fill("08:00")
        await form.get_by_label("Repeat").select_option("custom")
        await form.get_by_label("Rule").fill("FREQ=MINUTELY")
        await form.get_by_role("button", name="Add").click()
        await expect(form.get_by_role("alert")).to_contain_text("at most every 5 minutes")
        await expect(form.get_by_label("What")).to_have_value("Water the ficus")
        await form.get_by_label("Repeat").select_option("daily")
        await form.get_by_role("button", name="Add").click()
        row = panel.get_by_role("listitem").filter(has_text="Water the ficus")
        await expect(row).to_contain_text("tomorrow 08:00")
        await expect(row).to_contain_text("every day at 08:00")
        await expect(row).to_contain_text("by you")
        await expect(page.get_by_role("button", name="Next: tomorrow 08:00")).to_be_visible()
        await expect(other.get_by_role("listitem").filter(has_text="Water the ficus")).to_contain_text(
            f"08:00 in {HERE}"
        )
        assert action(stack, "Water the ficus")["tz"] == HERE

        await row.get_by_role("button", name="Change: Water the ficus").click()
        change = panel.get_by_role("form", name="Change: Water the ficus")
        await expect(change.get_by_label("Time")).to_have_value("08:00")
        await expect(change.get_by_label("Repeat")).to_have_value("daily")
        await change.get_by_label("What").fill("Water the ficus and the fern")
        await change.get_by_label("Priority").select_option("High")
        await change.get_by_role("button", name="Save").click()
        row = panel.get_by_role("listitem").filter(has_text="Water the ficus and the fern")
        await expect(row).to_contain_text("High")
        await row.get_by_text("What happened to it").click()
        await expect(row.get_by_role("list", name="History")).to_contain_text("by you")
        await expect(other.get_by_role("listitem").filter(has_text="and the fern")).to_be_visible()
        kept = action(stack, "Water the ficus and the fern")
        assert (kept["rrule"], kept["tz"], kept["priority"]) == ("FREQ=DAILY", HERE, 1)


async def test_the_list_is_by_its_times_and_weight_and_says_what_did_not_work(stack: PageStack) -> None:
    async with stack.bridge.page(stack.cookie, resume={}) as client:
        soon = time.time() + 3 * 86_400
        for more in (
            {"content": "Some day: the attic", "priority": -1},
            {"content": "Call Zoltan", "due": soon, "tz": "Asia/Tokyo"},
            {"content": "Sort the photos", "priority": 5},
            {"content": "Send the report", "due": soon + 86_400, "rrule": "FREQ=MONTHLY;BYDAY=1MO"},
        ):
            answer = await client.ask("memory", {"op": "add_action", **more})
            assert answer["type"] == "memory_result", answer
        failed = next(each for each in answer["payload"]["actions"] if each["content"] == "Sort the photos")
        await client.ask("memory", {"op": "resolve_action", "id": failed["id"], "status": "failed"})
        for name, look in LOOKS.items():
            async with stack.page(timezone_id=HERE, locale="en-GB", **look) as page:
                panel = await to_do(page)
                rows = panel.locator(".action")
                await expect(rows.first).to_contain_text("Did not work")
                words = await rows.all_inner_texts()
                wanted = ["Sort the photos", "Water the ficus", "Call Zoltan", "Send the report", "Some day: the attic"]
                assert [next(word for word in wanted if word in row) for row in words] == wanted
                assert "in Asia/Tokyo" in words[2]
                assert "every month on the first Monday" in words[3]
                await panel.get_by_role("button", name="Add something to do").click()
                assert await violations(page) == []
                await shoot(page, f"actions-{name}")
        await client.ask("memory", {"op": "resolve_action", "id": failed["id"], "status": "open"})


async def test_a_browser_says_its_zone_once_and_two_of_them_do_not_take_turns(stack: PageStack) -> None:
    async with stack.bridge.page(stack.cookie, resume={}) as client:

        async def known() -> str:
            return str((await client.ask("system", {"action": "status"}))["payload"]["tz"])

        async with stack.page(timezone_id=HERE) as page:
            await ask(page, "Hello from here")
            assert await known() == HERE
            # Another one that is merely open says nothing; the first message from there does.
            async with stack.page(timezone_id="Asia/Tokyo") as elsewhere:
                await to_do(elsewhere)
                assert await known() == HERE
                await ask(elsewhere, "Hello from Tokyo")
                assert await known() == "Asia/Tokyo"
                await ask(page, "Hello once more")
                await page.reload()
                await to_do(page)
                assert await known() == "Asia/Tokyo"


async def test_what_is_due_fires_into_the_chat_and_is_done_on_the_list(stack: PageStack) -> None:
    async with stack.bridge.page(stack.cookie, resume={}) as client, stack.page(timezone_id=HERE) as page:
        await client.ask("memory", {"op": "add_action", "content": "Say hello to the fern", "due": time.time() + 1})
        line = page.locator(".by-schedule", has_text="By schedule: Say hello to the fern")
        await expect(line).to_be_visible()
        panel = await to_do(page)
        await panel.locator(".closed-actions > summary").click()
        done = panel.locator(".closed-actions .action", has_text="Say hello to the fern")
        await expect(done.locator(".badge")).to_have_text("Done")
        await page.reload()
        await expect(line).to_be_visible()
        await expect(page.get_by_role("heading", name="Sprite, as scheduled")).to_have_count(1)


async def test_a_repeat_made_in_words_is_changed_with_its_time_as_a_whole(stack: PageStack) -> None:
    async with (
        stack.page(timezone_id=HERE, locale="en-GB") as page,
        stack.bridge.page(stack.cookie, resume={}) as client,
    ):
        asked = {"op": "add_action", "content": "Open the windows", "rrule": "weekday at 7:30", "tz": HERE}
        answer = await client.ask("memory", asked)
        assert answer["type"] == "memory_result", answer
        # Memory and its style have not been opened yet.
        await expect(page.get_by_role("button", name="Next:")).to_have_css("border-top-width", "0px")
        panel = await to_do(page)
        await panel.get_by_role("button", name="Change: Open the windows").click()
        form = panel.get_by_role("form", name="Change: Open the windows")
        await expect(form.get_by_label("Repeat")).to_have_value("weekdays")
        await expect(form.get_by_label("Time")).to_have_value("07:30")
        await form.get_by_label("Time").fill("10:15")
        await form.get_by_role("button", name="Save").click()
        row = panel.get_by_role("listitem").filter(has_text="Open the windows")
        await expect(row).to_contain_text("every weekday at 10:15")
        assert action(stack, "Open the windows")["rrule"] == "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR"
        await panel.get_by_role("tab", name="Timeline").click()
        told = panel.locator(".timeline-words")
        await expect(told.filter(has_text="You changed “Open the windows”")).to_be_visible()
        await expect(told.filter(has_text="You added “Open the windows”")).to_be_visible()
