"""What a person writes on the page's canvas: notes, and edits in place, in a real browser on the real stack."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, Page, WebSocket, expect

from tests.canvas_studio import Block, block, card, studio
from tests.harness import rows
from tests.inspection import eventually
from tests.page_harness import PageStack, needs_chromium, page_stack, ready, shoot, violations

pytestmark = [needs_chromium(), pytest.mark.asyncio(loop_scope="session")]

#: Whatever waits for the next frame waits for half a second.
SLOW_FRAMES = """() => {
    const frame = window.requestAnimationFrame.bind(window);
    window.requestAnimationFrame = (draw) => setTimeout(() => frame(draw), 500);
}"""
FRUIT = block("table", columns=["fruit", "kg"], rows=[["pears", 3], ["apples", 12], ["figs", 7]])


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stack(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> AsyncIterator[PageStack]:
    async with page_stack(browser, tmp_path_factory.mktemp("writing"), "--permissions", "bypass") as found:
        yield found


def kept(stack: PageStack, title: str) -> list[Block]:
    """The blocks of a card as the server keeps them."""
    found = rows(stack.workspace / ".os/workspace.db", "SELECT blocks_json FROM cards WHERE title = ?", (title,))
    return [found_block for row in found for found_block in json.loads(row["blocks_json"])]


async def becomes(stack: PageStack, title: str, **wanted: Any) -> None:
    """Waits until a card's only block is kept so."""
    await eventually(
        lambda: [block["data"] for block in kept(stack, title)] == [wanted], f"{title} is kept as {wanted}"
    )


def field(found: Locator) -> Locator:
    return found.locator("textarea")


async def new_note(page: Page) -> Locator:
    await page.locator("#canvas-board, .canvas-instead").first.wait_for(state="attached")
    await page.get_by_role("button", name="New note").click()
    return page.get_by_role("form", name="New note")


# --- notes ---


async def test_a_note_is_written_by_keys_and_stands_on_the_stack_in_front(stack: PageStack) -> None:
    async with studio(stack, "Notes"), stack.page() as page:
        await page.keyboard.press("n")
        await page.keyboard.press("n")
        form = page.get_by_role("form", name="New note")
        await expect(form.get_by_label("Text of the note")).to_be_focused()
        assert await violations(page) == []
        await page.keyboard.type("Buy **milk**")
        await page.keyboard.press("Shift+Tab")
        await page.keyboard.type("Shopping")
        await shoot(page, "note-form")
        await page.keyboard.press("Control+Enter")
        note = card(page, "Shopping")
        await expect(note).to_be_focused()
        await expect(note.locator("strong")).to_have_text("milk")
        await expect(form).to_be_hidden()
        await expect(note.get_by_text("Written by you")).to_have_count(1)
        assert await violations(page) == []
        (written,) = kept(stack, "Shopping")
        assert (written["type"], written["by"], written["version"]) == ("text", "person", 1)


async def test_what_was_written_of_a_note_survives_escape_and_a_reload_and_a_lost_link(stack: PageStack) -> None:
    async with studio(stack, "Drafts"), stack.page() as page:
        form = await new_note(page)
        await form.get_by_label("Text of the note").fill("half a thou")
        await page.keyboard.press("Escape")
        await expect(form).to_be_hidden()
        await page.reload()
        await ready(page)
        text = form.get_by_label("Text of the note")
        await expect(text).to_have_value("half a thou")
        await text.press("End")
        await text.type("ght")
        await form.get_by_label("Title of the note").fill("Kept")
        await stack.stop_bridge()
        await form.get_by_role("button", name="Add note").click()
        await expect(form.get_by_text("goes out when the connection is back")).to_be_visible()
        await stack.start_bridge()
        await becomes(stack, "Kept", content="half a thought")
        await expect(card(page, "Kept")).to_be_visible()
        await expect(form).to_be_hidden()
        await page.reload()
        await ready(page)
        await expect(card(page, "Kept")).to_have_count(1)
        await expect(form).to_have_count(0)


# --- edits ---


async def test_text_is_edited_where_it_stands_and_escape_brings_back_what_stood_there(stack: PageStack) -> None:
    async with studio(stack, "Text") as studied, stack.page() as page, stack.page() as other:
        await studied.draw("Plan", block("text", content="Go to **Lund**"))
        found = card(page, "Plan")
        await found.get_by_text("Go to").click()
        await expect(field(found)).to_have_value("Go to **Lund**")
        await expect(field(found)).to_be_focused()
        assert await violations(page) == []
        await field(found).fill("something else")
        await page.keyboard.press("Escape")
        await expect(found.locator(".prose")).to_have_text("Go to Lund")
        await expect(field(found)).to_have_count(0)
        await expect(found.get_by_role("button", name="Edit text in Plan")).to_be_focused()
        await page.keyboard.press("F2")
        await field(found).fill("Go to **Malmö**\n\nand back")
        await shoot(page, "edit-text")
        await page.keyboard.press("Control+Enter")
        await becomes(stack, "Plan", content="Go to **Malmö**\n\nand back")
        await expect(card(other, "Plan").locator("strong")).to_have_text("Malmö")
        await expect(found.get_by_text("Edited by you")).to_have_count(1)
        await found.get_by_text("and back").click()
        await field(found).fill("Stay")
        await page.locator("#composer-text").click()
        await becomes(stack, "Plan", content="Stay")
        assert kept(stack, "Plan")[0]["version"] == 3


async def test_a_cell_is_edited_by_keys_in_the_order_that_is_shown(stack: PageStack) -> None:
    async with studio(stack, "Cells") as studied, stack.page() as page:
        await studied.draw("Fruit", FRUIT, card_type="table")
        found = card(page, "Fruit")
        await found.get_by_role("button", name="fruit", exact=True).click()
        await expect(found.locator("tbody tr").first).to_contain_text("apples")
        await found.locator("tbody td").first.focus()
        await page.keyboard.press("ArrowDown")
        await page.keyboard.press("ArrowRight")
        await page.keyboard.press("Enter")
        await expect(field(found)).to_have_value("7")
        assert await violations(page) == []
        await shoot(page, "edit-cell")
        await field(found).fill("8")
        await page.keyboard.press("Enter")
        table = {"columns": ["fruit", "kg"], "rows": [["pears", 3], ["apples", 12], ["figs", 8]]}
        await becomes(stack, "Fruit", **table)
        await expect(found.locator("tbody tr").nth(1).locator("td").nth(1)).to_be_focused()
        await expect(found.locator("tbody tr").first).to_contain_text("apples")
        await expect(found.get_by_text("Edited by you")).to_be_visible()
        await found.get_by_role("cell", name="pears").click()
        await field(found).fill("quinces")
        await found.get_by_role("button", name="Save").click()
        await expect(found.get_by_role("cell", name="quinces")).to_be_visible()


async def test_both_sides_of_a_pair_can_be_edited_and_a_heading_too(stack: PageStack) -> None:
    async with studio(stack, "Pairs") as studied, stack.page() as page:
        pairs = [{"key": "city", "value": "Lund"}, {"key": "people", "value": 91940}]
        await studied.draw("Facts", block("heading", text="A town", level=2), block("key-value", pairs=pairs))
        found = card(page, "Facts")
        await found.get_by_text("91940").click()
        await field(found).fill("92000")
        await page.keyboard.press("Enter")
        await expect(found.get_by_text("92000")).to_be_focused()
        await page.keyboard.press("ArrowUp")
        await page.keyboard.press("ArrowLeft")
        await page.keyboard.press("Enter")
        await field(found).fill("town")
        await page.keyboard.press("Enter")
        await expect(found.locator("dt").first).to_have_text("town")
        await found.get_by_role("heading", name="A town").click()
        await field(found).fill("A university town")
        await page.keyboard.press("Enter")
        await expect(found.get_by_role("heading", name="A university town")).to_be_visible()
        heading, list_of_pairs = kept(stack, "Facts")
        assert heading["data"] == {"text": "A university town", "level": 2}
        assert list_of_pairs["data"]["pairs"] == [{"key": "town", "value": "Lund"}, {"key": "people", "value": 92000}]
        assert await violations(page) == []


# --- changed meanwhile ---


async def test_a_change_that_comes_while_one_types_takes_nothing_away_and_both_versions_are_shown(
    stack: PageStack,
) -> None:
    async with studio(stack, "Conflict") as studied, stack.page() as page:
        card_id = await studied.draw("Draft", block("text", content="one\ntwo"), block("badge", text="open"))
        block_id = kept(stack, "Draft")[0]["id"]
        found = card(page, "Draft")
        await found.get_by_text("one").click()
        await field(found).fill("one\nmine")
        await studied.change(card_id, {"id": kept(stack, "Draft")[1]["id"], "type": "badge", "data": {"text": "busy"}})
        await expect(found.locator(".badge")).to_have_text("busy")
        await expect(field(found)).to_be_focused()
        await studied.change(card_id, {"id": block_id, "type": "text", "data": {"content": "one\ntheirs"}})
        await expect(found.get_by_text("was changed meanwhile, by Sprite")).to_be_visible()
        await expect(field(found)).to_be_focused()
        await expect(field(found)).to_have_value("one\nmine")
        assert await violations(page) == []
        await page.reload()
        await ready(page)
        await expect(field(found)).to_have_value("one\nmine")
        await expect(found.get_by_text("was changed meanwhile")).to_be_visible()
        await field(found).press("Control+Enter")
        dialog = page.get_by_role("dialog", name="This has changed meanwhile")
        await expect(dialog.locator("del")).to_contain_text("theirs")
        await expect(dialog.locator("ins")).to_contain_text("mine")
        await shoot(page, "edit-conflict")
        assert await violations(page) == []
        await page.keyboard.press("Escape")
        await expect(field(found)).to_have_value("one\nmine")
        await field(found).press("Control+Enter")
        await dialog.get_by_role("button", name="Keep mine").click()
        await eventually(lambda: kept(stack, "Draft")[0]["data"] == {"content": "one\nmine"}, "mine is kept")
        assert kept(stack, "Draft")[0]["version"] == 3
        await expect(field(found)).to_have_count(0)


async def test_of_two_pages_that_edit_one_note_the_second_is_asked_and_can_take_theirs(stack: PageStack) -> None:
    async with studio(stack, "Two") as studied, stack.page() as first, stack.page() as second:
        await studied.draw("Both", block("note", content="before"))
        for page in (first, second):
            await card(page, "Both").get_by_text("before").click()
        await field(card(first, "Both")).fill("of the first")
        await field(card(second, "Both")).fill("of the second")
        await first.keyboard.press("Control+Enter")
        await expect(card(second, "Both").get_by_text("was changed meanwhile")).to_be_visible()
        await field(card(second, "Both")).press("Control+Enter")
        dialog = second.get_by_role("dialog", name="This has changed meanwhile")
        await dialog.get_by_role("button", name="Take theirs").click()
        await expect(card(second, "Both").locator(".note-block")).to_have_text("of the first")
        await becomes(stack, "Both", content="of the first")


async def test_edits_of_two_cells_of_one_table_are_both_kept(stack: PageStack) -> None:
    async with studio(stack, "Merge") as studied, stack.page() as first, stack.page() as second:
        await studied.draw("Shared", FRUIT, card_type="table")
        for page, cell, words in ((first, "12", "13"), (second, "7", "9")):
            await card(page, "Shared").get_by_role("cell", name=cell, exact=True).click()
            await field(card(page, "Shared")).fill(words)
        await first.keyboard.press("Enter")
        await expect(card(second, "Shared").get_by_role("cell", name="13", exact=True)).to_be_visible()
        await second.keyboard.press("Enter")
        await becomes(stack, "Shared", columns=["fruit", "kg"], rows=[["pears", 3], ["apples", 13], ["figs", 9]])


async def test_an_edit_that_cannot_be_sent_waits_for_the_connection(stack: PageStack) -> None:
    async with studio(stack, "Waiting") as studied, stack.page() as page:
        await studied.draw("Wait", block("text", content="before"))
        found = card(page, "Wait")
        await found.get_by_text("before").click()
        await stack.stop_bridge()
        await field(found).fill("after")
        await page.keyboard.press("Control+Enter")
        await expect(found.get_by_text("Not saved yet")).to_be_visible()
        await stack.start_bridge()
        await becomes(stack, "Wait", content="after")
        await expect(field(found)).to_have_count(0)


async def test_a_card_that_is_archived_while_one_types_keeps_the_words_and_saves_nothing(stack: PageStack) -> None:
    sent: list[str] = []
    async with studio(stack, "Away") as studied, stack.context() as context:
        context.on("page", lambda page: page.on("websocket", partial(listen_to, sent)))
        page = await stack.open(context)
        card_id = await studied.draw("Gone", block("text", content="before"))
        found = card(page, "Gone")
        await found.get_by_text("before").click()
        await field(found).fill("still typing")
        # On a busy machine the field is out of sight, and has lost the keyboard, long before the card is taken away.
        await page.evaluate(SLOW_FRAMES)
        await studied.interact(action="archive_card", card_id=card_id)
        await expect(found).to_have_count(0)
        await studied.interact(action="restore_card", card_id=card_id)
        await expect(field(found)).to_have_value("still typing")
        assert sent
        assert [frame for frame in sent if "update_block" in frame] == []
        assert [each["data"] for each in kept(stack, "Gone")] == [{"content": "before"}]


def listen_to(sent: list[str], socket: WebSocket) -> None:
    """Notes what a page says."""
    socket.on("framesent", lambda frame: sent.append(str(frame)))


async def test_on_a_phone_a_tap_edits_and_everything_fits(stack: PageStack) -> None:
    phone = {"viewport": {"width": 360, "height": 640}, "has_touch": True, "is_mobile": True}
    async with studio(stack, "Phone") as studied, stack.page(**phone, color_scheme="dark") as page:
        await studied.draw("Small", block("text", content="Tap me"), FRUIT)
        await page.get_by_role("tab", name="Canvas").or_(page.get_by_role("button", name="Canvas")).first.click()
        found = card(page, "Small")
        await found.get_by_text("Tap me").tap()
        await field(found).fill("Tapped\nand\nlonger")
        await shoot(page, "edit-phone")
        assert await violations(page) == []
        await found.get_by_role("button", name="Save").tap()
        await expect(found.get_by_text("and longer")).to_be_visible()
        await found.get_by_role("cell", name="12", exact=True).tap()
        await expect(field(found)).to_have_value("12")
        await shoot(page, "edit-cell-phone")
        assert await page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
        assert await violations(page) == []
        assert stack.complaints == []
