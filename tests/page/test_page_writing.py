"""What a person writes on the page's canvas: notes, and edits in place, in a real browser on the real stack."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, Page, expect

from tests.canvas_studio import Block, block, card, studio
from tests.harness import rows
from tests.inspection import eventually
from tests.page_harness import PageStack, Wire, needs_chromium, page_stack, ready, shoot, violations

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


async def test_note_is_written_by_keys(stack: PageStack, page: Page) -> None:
    async with studio(stack, "Notes"):
        await page.keyboard.press("n")
        await page.keyboard.press("n")
        form = page.get_by_role("form", name="New note")
        await expect(form.get_by_label("Text of the note")).to_be_focused()
        await page.keyboard.type("Buy **milk**")
        await page.keyboard.press("Shift+Tab")
        await page.keyboard.type("Shopping")
        assert await violations(page) == []
        await shoot(page, "note-form")
        await page.keyboard.press("Control+Enter")
        note = card(page, "Shopping")
        await expect(note).to_be_focused()
        await expect(note.locator("strong")).to_have_text("milk")
        await expect(form).to_be_hidden()
        await expect(note.get_by_text("Written by you")).to_have_count(1)
        (written,) = kept(stack, "Shopping")
        assert (written["type"], written["by"], written["version"]) == ("text", "person", 1)


async def test_unsent_note_and_edit_wait_for_connection(stack: PageStack, page: Page) -> None:
    """A note that is half written also survives Escape and a reload."""
    async with studio(stack, "Drafts") as studied:
        await studied.put("Wait", block("text", content="before"))
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
        found = card(page, "Wait")
        await found.get_by_text("before").click()
        await stack.stop_bridge()
        await field(found).fill("after")
        await page.keyboard.press("Control+Enter")
        await expect(found.get_by_text("Not saved yet")).to_be_visible()
        await form.get_by_role("button", name="Add note").click()
        await expect(form.get_by_text("goes out when the connection is back")).to_be_visible()
        await stack.start_bridge()
        await becomes(stack, "Kept", content="half a thought")
        await becomes(stack, "Wait", content="after")
        await expect(field(found)).to_have_count(0)
        await expect(card(page, "Kept")).to_be_visible()
        await expect(form).to_be_hidden()
        await page.reload()
        await ready(page)
        await expect(card(page, "Kept")).to_have_count(1)
        await expect(form).to_have_count(0)
        # The studio's own connection ended with the bridge.
        await page.get_by_role("button", name="Archive stack Drafts").click()
        await expect(page.get_by_role("tab", name="Drafts")).to_have_count(0)


# --- edits ---


async def test_text_is_edited_where_it_stands(stack: PageStack, page: Page, wire: Wire) -> None:
    async with studio(stack, "Text") as studied:
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
        await expect(card(wire.page, "Plan").locator("strong")).to_have_text("Malmö")
        await expect(found.get_by_text("Edited by you")).to_have_count(1)
        await found.get_by_text("and back").click()
        await field(found).fill("Stay")
        await page.locator("#composer-text").click()
        await becomes(stack, "Plan", content="Stay")
        assert kept(stack, "Plan")[0]["version"] == 3


async def test_cell_is_edited_in_the_order_shown(stack: PageStack, page: Page) -> None:
    async with studio(stack, "Cells") as studied:
        await studied.put("Fruit", FRUIT)
        found = card(page, "Fruit")
        await found.get_by_role("button", name="fruit", exact=True).click()
        await expect(found.locator("tbody tr").first).to_contain_text("apples")
        await found.locator("tbody td").first.focus()
        await page.keyboard.press("ArrowDown")
        await page.keyboard.press("ArrowRight")
        await page.keyboard.press("Enter")
        await expect(field(found)).to_have_value("7")
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


async def test_pairs_and_headings_are_edited(stack: PageStack, page: Page) -> None:
    async with studio(stack, "Pairs") as studied:
        pairs = [{"key": "city", "value": "Lund"}, {"key": "people", "value": 91940}]
        await studied.put("Facts", block("heading", text="A town", level=2), block("key-value", pairs=pairs))
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


# --- changed meanwhile ---


async def test_change_while_typing_shows_both_versions(stack: PageStack, page: Page) -> None:
    async with studio(stack, "Conflict") as studied:
        card_id = await studied.put("Draft", block("text", content="one\ntwo"), block("badge", text="open"))
        block_id = kept(stack, "Draft")[0]["id"]
        found = card(page, "Draft")
        await found.get_by_text("one").click()
        await field(found).fill("one\nmine")
        badge = {"card_id": card_id, "block_id": kept(stack, "Draft")[1]["id"], "seen": 1}
        await studied.interact(action="update_block", **badge, data={"text": "busy"})
        await expect(found.locator(".badge")).to_have_text("busy")
        await expect(field(found)).to_be_focused()
        await studied.change(card_id, {"id": block_id, "type": "text", "data": {"content": "one\ntheirs"}})
        await expect(found.get_by_text("was changed meanwhile, by Sprite")).to_be_visible()
        await expect(field(found)).to_be_focused()
        await expect(field(found)).to_have_value("one\nmine")
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


async def test_two_pages_edit_one_card(stack: PageStack, page: Page, wire: Wire) -> None:
    """Edits of two cells are both kept; of one note, the second page is asked and can take theirs."""
    second = wire.page
    async with studio(stack, "Two") as studied:
        await studied.put("Both", block("note", content="before"))
        for each in (page, second):
            await card(each, "Both").get_by_text("before").click()
        await field(card(page, "Both")).fill("of the first")
        await field(card(second, "Both")).fill("of the second")
        await page.keyboard.press("Control+Enter")
        await expect(card(second, "Both").get_by_text("was changed meanwhile")).to_be_visible()
        await field(card(second, "Both")).press("Control+Enter")
        dialog = second.get_by_role("dialog", name="This has changed meanwhile")
        await dialog.get_by_role("button", name="Take theirs").click()
        await expect(card(second, "Both").locator(".note-block")).to_have_text("of the first")
        await becomes(stack, "Both", content="of the first")

        await studied.put("Shared", FRUIT)
        for each, cell, words in ((page, "12", "13"), (second, "7", "9")):
            await card(each, "Shared").get_by_role("cell", name=cell, exact=True).click()
            await field(card(each, "Shared")).fill(words)
        await page.keyboard.press("Enter")
        await expect(card(second, "Shared").get_by_role("cell", name="13", exact=True)).to_be_visible()
        await second.keyboard.press("Enter")
        await becomes(stack, "Shared", columns=["fruit", "kg"], rows=[["pears", 3], ["apples", 13], ["figs", 9]])


async def test_card_archived_while_typing_keeps_the_words(stack: PageStack, wire: Wire) -> None:
    sent: list[str] = []

    def note(frame: str) -> str:
        sent.append(frame)
        return frame

    wire.sent = note
    async with studio(stack, "Away") as studied:
        card_id = await studied.put("Gone", block("text", content="before"))
        found = card(wire.page, "Gone")
        await found.get_by_text("before").click()
        await field(found).fill("still typing")
        # On a busy machine the field is out of sight, and has lost the keyboard, long before the card is taken away.
        await wire.page.evaluate(SLOW_FRAMES)
        await studied.interact(action="archive_card", card_id=card_id)
        await expect(found).to_have_count(0)
        await studied.interact(action="restore_card", card_id=card_id)
        await expect(field(found)).to_have_value("still typing")
        assert [frame for frame in sent if "update_block" in frame] == []
        assert [each["data"] for each in kept(stack, "Gone")] == [{"content": "before"}]
        # A save is a frame that this test sees.
        await field(found).press("Control+Enter")
        await becomes(stack, "Gone", content="still typing")
        assert [frame for frame in sent if "update_block" in frame] != []


async def test_on_a_phone_a_tap_edits(stack: PageStack) -> None:
    phone = {"viewport": {"width": 360, "height": 640}, "has_touch": True, "is_mobile": True}
    async with studio(stack, "Phone") as studied:
        await studied.put("Small", block("text", content="Tap me"), FRUIT)
        async with stack.page(**phone, color_scheme="dark") as page:
            await page.get_by_role("tab", name="Canvas").or_(page.get_by_role("button", name="Canvas")).first.click()
            found = card(page, "Small")
            await found.get_by_text("Tap me").tap()
            await field(found).fill("Tapped\nand\nlonger")
            await shoot(page, "edit-phone")
            await found.get_by_role("button", name="Save").tap()
            await expect(found.get_by_text("and longer")).to_be_visible()
            await found.get_by_role("cell", name="12", exact=True).tap()
            await expect(field(found)).to_have_value("12")
            await shoot(page, "edit-cell-phone")
            assert await page.evaluate("() => document.documentElement.scrollWidth <= innerWidth")
            assert await violations(page) == []
    assert stack.complaints == []
