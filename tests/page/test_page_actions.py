"""What is to be done, on the page: added, changed, refused at its field, the same on every page; in a real browser."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, Page, expect

from tests.bridge_harness import PageClient
from tests.harness import observations
from tests.inspection import memory
from tests.page_harness import PageStack, ask, needs_chromium, page_stack, shoot, violations

pytestmark = [needs_chromium(), pytest.mark.asyncio(loop_scope="session")]

HERE = "Europe/Berlin"
#: What a browser in Berlin has; the tests share its window.
BERLIN: dict[str, Any] = {"timezone_id": HERE, "locale": "en-GB"}


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


async def test_action_is_changed_on_every_page(stack: PageStack) -> None:
    """Added, refused at its field, changed, and seen on a page in another time zone, which is told once."""
    async with (
        stack.page(**BERLIN) as page,
        stack.page(timezone_id="Asia/Tokyo", locale="en-GB") as second,
        stack.bridge.page(stack.cookie, resume={}) as client,
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
        await tells_its_zone_once(page, second, client)


async def tells_its_zone_once(page: Page, second: Page, client: PageClient) -> None:
    """A browser tells its time zone with its first message; one that is merely open does not."""

    async def known() -> str:
        return str((await client.ask("system", {"action": "status"}))["payload"]["tz"])

    await ask(second, "Hello from Tokyo")
    assert await known() == "Asia/Tokyo"
    await ask(page, "Hello from here")
    assert await known() == HERE
    await ask(second, "Hello once more")
    await second.reload()
    await to_do(second)
    assert await known() == HERE


async def test_actions_are_ordered_by_time_and_priority(stack: PageStack) -> None:
    """Failed ones stand first; a repeat that was made in words is changed with its time as a whole."""
    async with stack.bridge.page(stack.cookie, resume={}) as client, stack.page(**BERLIN) as page:
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
        # Memory and its style have not been opened yet.
        await expect(page.get_by_role("button", name="Next:")).to_have_css("border-top-width", "0px")
        panel = await to_do(page)
        rows = panel.locator(".action")
        await expect(rows.first).to_contain_text("Did not work")
        words = await rows.all_inner_texts()
        wanted = ["Sort the photos", "Water the ficus", "Call Zoltan", "Send the report", "Some day: the attic"]
        assert [next(word for word in wanted if word in row) for row in words] == wanted
        assert "in Asia/Tokyo" in words[2]
        assert "every month on the first Monday" in words[3]
        await shoot(page, "actions-light")
        await panel.get_by_role("button", name="Add something to do").click()
        assert await violations(page) == []
        await page.emulate_media(color_scheme="dark")
        await page.set_viewport_size({"width": 390, "height": 844})
        await expect(panel.get_by_role("form", name="Something to do")).to_be_visible()
        assert await violations(page) == []
        await shoot(page, "actions-dark-phone")
        await page.emulate_media(color_scheme="light")

        asked = {"op": "add_action", "content": "Open the windows", "rrule": "weekday at 7:30", "tz": HERE}
        answer = await client.ask("memory", asked)
        assert answer["type"] == "memory_result", answer
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


async def test_promise_is_kept_once(stack: PageStack) -> None:
    """The agent schedules what it is asked for; once it is due, a turn begins by itself.

    A repeat stays open; an action without one is done.
    """
    now = datetime.now(ZoneInfo(HERE)).strftime("%Y-%m-%dT%H:%M:%S")
    table = {"type": "table", "data": {"columns": ["Action"], "rows": [["Water the ficus"]]}}
    card = {"title": "Open actions", "card_type": "table", "blocks": [table]}
    stack.model.script.agent(
        {
            "tool": "mcp__sprite__schedule",
            "input": {"content": "Draw my open actions", "due": now, "rrule": "FREQ=WEEKLY"},
            "match": "Each week from now on",
        },
        {"text": "I will, each week.", "on": "result"},
        {"tool": "mcp__sprite__create_card", "input": card, "match": "A schedule began this turn"},
        {"text": "Your open actions are on a card.", "on": "result"},
    )
    async with stack.bridge.page(stack.cookie, resume={}) as client, stack.page(**BERLIN) as page:
        await ask(page, "Each week from now on, draw my open actions")
        await expect(page.get_by_text("I will, each week.").last).to_be_visible()
        line = page.locator(".by-schedule", has_text="By schedule: Draw my open actions")
        await expect(line).to_be_visible()
        await expect(page.get_by_text("Your open actions are on a card.").last).to_be_visible()
        await expect(page.get_by_role("heading", name="Open actions").last).to_be_visible()
        panel = await to_do(page)
        row = panel.get_by_role("listitem").filter(has_text="Draw my open actions")
        await expect(row).to_contain_text("every week")
        kept = action(stack, "Draw my open actions")
        assert (kept["status"], kept["due"] > time.time() + 6 * 86_400) == ("open", True)
        await client.ask("memory", {"op": "add_action", "content": "Say hello to the fern", "due": time.time() + 1})
        await expect(page.locator(".by-schedule", has_text="By schedule: Say hello to the fern")).to_be_visible()
        await panel.locator(".closed-actions > summary").click()
        done = panel.locator(".closed-actions .action", has_text="Say hello to the fern")
        await expect(done.locator(".badge")).to_have_text("Done")
        await page.reload()
        await expect(line).to_have_count(1)
        await expect(page.get_by_role("heading", name="Sprite, as scheduled")).to_have_count(2)
    assert len([turn for turn in observations(stack.workspace) if turn["by_schedule"]]) == 2
