"""The page marks what its person pasted or dropped into a message, in a real browser up to the log."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from sprite.protocol.pasted import own_text, read_spans
from sprite.protocol.tools import SCHEDULE_CALL
from tests.looks import observations
from tests.page_harness import PageStack, needs_chromium, page_stack, ready, settled, shoot, violations

pytestmark = [needs_chromium(), pytest.mark.asyncio(loop_scope="session")]

FIELD = "#composer-text"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stack(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> AsyncIterator[PageStack]:
    schedule = {"content": "Wire 900 euros to \U0001f600 Mallory", "due": "2030-01-04"}
    steps: list[dict[str, Any]] = [
        {"match": "take long", "hang": True, "times": -1, "on": "prompt"},
        {"match": "schedule it", "tool": SCHEDULE_CALL, "input": schedule, "on": "prompt"},
    ]
    async with page_stack(browser, tmp_path_factory.mktemp("pasted"), "--permissions", "ask", steps=steps) as found:
        yield found
        assert found.complaints == []


async def paste(page: Page, text: str) -> None:
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await page.evaluate("text => navigator.clipboard.writeText(text)", text)
    await page.keyboard.press("Control+V")


async def write(page: Page, text: str) -> None:
    """Type a text; a newline would send it."""
    await page.keyboard.type(text)


async def sent(stack: PageStack, page: Page, shown: str) -> str:
    """Send the field's text; return the words that the log takes for the person's own."""
    await page.keyboard.press("Enter")
    await settled(page, shown)
    turn = observations(stack.workspace)[-1]
    assert shown in turn["user_message"]
    return own_text(turn["user_message"], read_spans(turn["pasted_json"]))


async def test_paste_stays_marked_while_person_edits(stack: PageStack, page: Page) -> None:
    await page.focus(FIELD)
    await write(page, "  I like tea. ")
    await paste(page, "Pay \U0001f600 Kraken!")
    await write(page, " Thanks")
    await page.keyboard.press("Home")
    await write(page, "\U0001f600 ")
    # Into the middle of the paste, and one sign of it away.
    await page.evaluate("field => field.setSelectionRange(25, 25)", await page.query_selector(FIELD))
    await write(page, "now")
    await page.keyboard.press("Backspace")
    # The draft outlives a reload.
    await page.reload()
    await ready(page)
    await expect(page.locator(FIELD)).to_have_value("\U0001f600   I like tea. Pay \U0001f600 Knoraken! Thanks")
    await page.focus(FIELD)
    assert await sent(stack, page, "Thanks") == "\U0001f600   I like tea. \n Thanks"


async def test_undo_and_cut_bring_marks_back(stack: PageStack, page: Page) -> None:
    await page.focus(FIELD)
    await write(page, "Mine. ")
    await paste(page, "Theirs.")
    await page.keyboard.press("Control+A")
    await page.keyboard.press("Delete")
    await expect(page.locator(FIELD)).to_have_value("")
    await page.keyboard.press("Control+Z")
    await expect(page.locator(FIELD)).to_have_value("Mine. Theirs.")
    await page.keyboard.press("End")
    # A paste that replaces typed words, and is typed over itself, leaves no mark.
    await write(page, " wrong")
    await page.keyboard.press("Control+Shift+ArrowLeft")
    await paste(page, "right")
    await page.keyboard.press("Control+Shift+ArrowLeft")
    await write(page, "again")
    assert await sent(stack, page, "again") == "Mine. \n again"


async def test_dropped_text_is_marked(stack: PageStack, page: Page) -> None:
    await page.focus(FIELD)
    await write(page, "See ")
    box = await page.locator(FIELD).bounding_box()
    assert box is not None
    items = [{"mimeType": "text/plain", "data": "a dropped line"}]
    session = await page.context.new_cdp_session(page)
    for kind in ("dragEnter", "dragOver", "drop"):
        event = {"type": kind, "x": box["x"] + box["width"] - 8, "y": box["y"] + box["height"] / 2}
        await session.send("Input.dispatchDragEvent", {**event, "data": {"items": items, "dragOperationsMask": 1}})
    await expect(page.locator(FIELD)).to_have_value("See a dropped line")
    await page.keyboard.press("End")
    await write(page, " thanks")
    assert await sent(stack, page, "dropped") == "See \n thanks"


async def test_queued_message_keeps_marks_when_edited(stack: PageStack, page: Page) -> None:
    await page.focus(FIELD)
    await write(page, "take long")
    await page.keyboard.press("Enter")
    await expect(page.locator(".run-state")).to_have_attribute("data-kind", "busy")
    await write(page, "Is this so: ")
    await paste(page, "the sky is green")
    await page.keyboard.press("Enter")
    await expect(page.locator(".exchange[data-status=queued]")).to_have_count(1)
    await page.reload()
    await ready(page)
    await page.get_by_role("button", name="Edit").click()
    await expect(page.locator(FIELD)).to_have_value("Is this so: the sky is green")
    await page.get_by_role("button", name="Stop").click()
    await settled(page, "take long")
    await page.focus(FIELD)
    await page.keyboard.press("End")
    await write(page, "?")
    assert await sent(stack, page, "green?") == "Is this so: \n?"
    assert json.loads(observations(stack.workspace)[-1]["pasted_json"]) == [[12, 28]]


async def test_question_marks_words_from_outside(page: Page) -> None:
    await page.fill(FIELD, "Please schedule it\n> Wire 900 euros to Mallory.")
    await page.keyboard.press("Enter")
    question = page.locator(".question").last
    await expect(question).to_contain_text("Marked words come from outside: paste.")
    assert await question.locator("mark").all_text_contents() == ["Wire 900 euros", "Mallory"]
    await shoot(page, "question-marked")
    await question.get_by_role("button", name="Don\u2019t allow").click()
    await settled(page, "Please schedule it")
    title = "This session has read text from outside"
    await page.get_by_role("button", name=title).click()
    dialog = page.get_by_role("dialog", name=title)
    await expect(dialog).to_contain_text("It has read: paste")
    assert await violations(page) == []
    await shoot(page, "exposed")
    await page.keyboard.press("Escape")
