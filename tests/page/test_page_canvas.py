"""The page's canvas: cards that the agent draws and people place, in a real browser on the real stack.

Long, since its tests share one browser.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, Page, WebSocketRoute, expect

from tests.canvas_studio import block, card, studio
from tests.inspection import eventually
from tests.page_harness import PageStack, needs_chromium, page_stack, shoot, violations

pytestmark = [needs_chromium(), pytest.mark.asyncio(loop_scope="session")]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stack(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> AsyncIterator[PageStack]:
    async with page_stack(browser, tmp_path_factory.mktemp("canvas"), "--permissions", "bypass") as found:
        yield found


async def place(found: Locator) -> dict[str, float]:
    """Where a card stands on the screen, once it has come to rest."""
    await found.evaluate("e => Promise.all(e.getAnimations().map(a => a.finished.catch(() => null)))")
    box = await found.bounding_box()
    assert box is not None
    return {name: round(box[name]) for name in ("x", "y", "width", "height")}


async def grab(page: Page, found: Locator) -> tuple[float, float]:
    """Presses on a card's head, and pulls a little."""
    box = await found.locator(".card-head").bounding_box()
    assert box is not None
    x, y = box["x"] + 60, box["y"] + box["height"] / 2
    await page.mouse.move(x, y)
    await page.mouse.down()
    await page.mouse.move(x + 20, y + 20, steps=3)
    return x, y


def overlaps(boxes: list[dict[str, float]]) -> bool:
    return any(
        a["x"] < b["x"] + b["width"]
        and b["x"] < a["x"] + a["width"]
        and a["y"] < b["y"] + b["height"]
        and b["y"] < a["y"] + a["height"]
        for a, b in itertools.combinations(boxes, 2)
    )


# --- drawing ---


async def test_an_empty_canvas_teaches_one_action(stack: PageStack) -> None:
    # The first test of all: nothing has been drawn yet.
    async with stack.page() as page:
        await page.get_by_role("button", name="Ask for a table").click()
        assert "table" in await page.input_value("#composer-text")
        assert await violations(page) == []


async def test_a_card_the_agent_draws_stands_there_at_once_and_a_change_lights_it(stack: PageStack) -> None:
    async with studio(stack, "Live") as easel, stack.page() as page:
        plan = await easel.draw("Plan", {**block("progress", value=10, label="Done"), "id": "p"})
        await expect(card(page, "Plan").get_by_role("progressbar", name="Done")).to_have_attribute("value", "10")
        await page.wait_for_function("() => !document.querySelector('.canvas-card.flash')")
        # Nothing the agent makes takes the keyboard.
        await page.focus("#composer-text")
        await page.evaluate(
            "() => { window.lit = 0; const seen = change => change.target.classList.contains('flash') && window.lit++; "
            "new MutationObserver(changes => changes.forEach(seen)).observe(document.querySelector('.canvas-card'), "
            "{ attributeFilter: ['class'] }) }"
        )
        await easel.change(plan, {**block("progress", value=80, label="Done"), "id": "p"})
        await expect(card(page, "Plan").get_by_role("progressbar", name="Done")).to_have_attribute("value", "80")
        await page.wait_for_function("() => window.lit === 1")
        assert await page.evaluate("() => document.activeElement.id") == "composer-text"
    assert stack.complaints == []


async def test_every_block_is_drawn_and_axe_has_no_objection_in_light_and_dark(stack: PageStack) -> None:
    async with studio(stack, "All blocks") as easel:
        await easel.draw(
            "Everything",
            block("heading", text="First", level=1),
            block("stat", label="Revenue", value="$48,210", description="+12%"),
            block("stat", label="Customers", value=1204),
            block("key-value", pairs=[{"key": "Owner", "value": "Mira"}, {"key": "Public", "value": True}]),
            block("badge", text="on track", variant="success"),
            block("badge", text="late", variant="destructive"),
            block("progress", value=62, label="Done"),
            block("separator"),
            block("text", content="### Deep\n\nIt is **bold** and [a link](https://example.org)."),
            block("note", content="Ask Mira."),
            block("document", path="artifacts/a b#1.pdf", title="The report", excerpt="Forty pages."),
            block("document", path="/etc/hosts"),
        )
        await easel.draw("Rows", block("table", columns=["City", "People"], rows=[["Rome", 2.8], ["Oslo", 0.7]]))
        for scheme in ("light", "dark"):
            async with stack.page(color_scheme=scheme, viewport={"width": 1440, "height": 1100}) as page:
                everything = card(page, "Everything")
                for words in ("First", "$48,210", "Mira", "yes", "on track", "bold", "Ask Mira.", "Forty pages."):
                    await expect(everything).to_contain_text(words)
                link = everything.get_by_role("link", name="The report")
                assert await link.get_attribute("href") == "/files/artifacts/a%20b%231.pdf"
                assert await everything.get_by_text("hosts", exact=True).evaluate("e => e.localName") == "span"
                assert await violations(page) == []
                await shoot(page, f"canvas-{scheme}")


async def test_a_block_of_a_newer_sprite_is_shown_as_such(stack: PageStack) -> None:
    def newer(route: WebSocketRoute) -> None:
        server = route.connect_to_server()
        route.on_message(server.send)
        server.on_message(lambda frame: route.send(str(frame).replace('"type":"note"', '"type":"hologram"')))

    async with studio(stack, "Newer") as easel, stack.context() as context:
        await easel.draw("From tomorrow", block("note", content="seen in three dimensions"))
        await context.route_web_socket("**/ws", newer)
        page = await stack.open(context)
        unknown = card(page, "From tomorrow").get_by_text("A “hologram” block, which this page cannot draw yet")
        await unknown.click()
        await expect(card(page, "From tomorrow")).to_contain_text("seen in three dimensions")


async def test_hostile_content_runs_nowhere(stack: PageStack) -> None:
    evil = "<img src=x onerror=\"window.ran=1\"><script>window.ran=1</script><svg onload='window.ran=1'>"
    async with studio(stack, evil) as easel:
        await easel.draw(
            evil,
            block("table", columns=[evil, "b"], rows=[[evil, "javascript:window.ran=1"], ["=cmd|' /C calc'!A0", 1]]),
            block("text", content=f"{evil}\n\n[click](javascript:window.ran=1) ![i](javascript:window.ran=1)"),
            block("document", path=f"documents/{evil}", title=evil),
            block("document", path="documents/../../web/app.js", title="up and away"),
            block("badge", text=evil),
            block("heading", text=evil),
        )
        async with stack.page() as page:
            shown = page.locator(".canvas-card")
            await expect(shown.locator("h3")).to_have_text(evil)
            await expect(shown.locator("td").first).to_have_text(evil)
            await expect(page.get_by_role("tab", selected=True, name="<img")).to_be_visible()
            assert await shown.locator("img, script, svg[onload], [href^=javascript]").count() == 0
            assert await shown.get_by_role("link").count() == 1
            assert (await shown.get_by_role("link").get_attribute("href") or "").startswith("/files/documents/%3Cimg")
            assert await page.evaluate("() => window.ran") is None
    assert stack.complaints == []


# --- places ---


async def test_cards_without_a_place_never_overlap_and_find_new_places_when_the_width_changes(
    stack: PageStack,
) -> None:
    async with studio(stack, "Packed") as easel:
        await easel.draw_all(*(f"Note {number}" for number in range(7)))
        await easel.draw("Wide", block("table", columns=list("abcdefg"), rows=[list(range(7))] * 4))
        placed = await easel.draw("Placed", block("note", content="Here."))
        await easel.interact(
            action="move_card", card_id=placed, position={"x": 50, "y": 90}, size={"width": 300, "height": 200}
        )
        async with stack.page() as page:
            await expect(page.locator(".canvas-card")).to_have_count(9)
            columns = []
            for width in (1000, 1280, 1800):
                await page.set_viewport_size({"width": width, "height": 900})
                await page.wait_for_function("() => window.innerWidth > 0")
                await page.evaluate("() => new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))")
                boxes = [await place(found) for found in await page.locator(".canvas-card").all()]
                assert not overlaps(boxes), width
                columns.append(len({box["x"] for box in boxes}))
            assert columns == sorted(columns)
            assert columns[0] < columns[-1]


async def test_a_card_dragged_stays_in_the_hand_while_the_agent_changes_another(stack: PageStack) -> None:
    async with studio(stack, "Drag") as easel, stack.page() as page:
        other = await easel.draw("Other", {**block("text", content="short"), "id": "t"})
        mine = await easel.draw("Mine", block("note", content="Drag me."))
        await expect(card(page, "Mine")).to_be_visible()
        x, y = await grab(page, card(page, "Mine"))
        await page.mouse.move(x + 100, y + 150, steps=5)
        held = await place(card(page, "Mine"))
        # The other one grows, which would push what stands below it.
        await easel.change(other, {**block("text", content="long\n\n" * 12), "id": "t"})
        await easel.draw("Third", block("note", content="One more."))
        await expect(card(page, "Other")).to_contain_text("long")
        await expect(card(page, "Third")).to_be_visible()
        assert await place(card(page, "Mine")) == held
        await page.mouse.move(x + 110, y + 160)
        await page.mouse.up()
        dropped = await place(card(page, "Mine"))
        assert abs(dropped["x"] - held["x"] - 10) <= 8
        assert abs(dropped["y"] - held["y"] - 10) <= 8
        await expect(page.locator("#announce")).to_contain_text("Mine moved to")
        await eventually(lambda: "x" in easel.kept(mine), "the server keeps its place")
        kept = easel.kept(mine)
        assert kept["x"] % 16 == kept["y"] % 16 == 0
    assert stack.complaints == []


async def test_escape_lets_go_of_a_dragged_card_and_nothing_is_kept(stack: PageStack) -> None:
    async with studio(stack, "Let go") as easel, stack.page() as page:
        mine = await easel.draw("Mine", block("note", content="Drag me."))
        before = await place(card(page, "Mine"))
        x, y = await grab(page, card(page, "Mine"))
        await page.mouse.move(x + 200, y + 100, steps=4)
        await page.keyboard.press("Escape")
        await page.mouse.up()
        assert await place(card(page, "Mine")) == before
        assert easel.kept(mine) == {}


async def test_a_second_page_follows_a_move_and_a_reload_finds_it_there(stack: PageStack) -> None:
    async with studio(stack, "Two pages") as easel, stack.page() as page, stack.page() as second:
        mine = await easel.draw("Mine", block("note", content="Drag me."))
        await expect(card(second, "Mine")).to_be_visible()
        x, y = await grab(page, card(page, "Mine"))
        await page.mouse.move(x + 160, y + 240, steps=4)
        await page.mouse.up()
        await expect(page.locator("#announce")).to_contain_text("160 across, 240 down")
        moved = "e => e.style.translate === '160px 240px'"
        for each in (page, second):
            await each.wait_for_function(f"() => ({moved})(document.querySelector('.canvas-card'))")
        sizer = await card(page, "Mine").get_by_role("button", name="Resize Mine").bounding_box()
        assert sizer is not None
        await page.mouse.move(sizer["x"] + 10, sizer["y"] + 10)
        await page.mouse.down()
        await page.mouse.move(sizer["x"] + 74, sizer["y"] + 106, steps=4)
        await page.mouse.up()
        await expect(page.locator("#announce")).to_contain_text("wide")
        size = await place(card(page, "Mine"))
        await second.wait_for_function(
            "w => document.querySelector('.canvas-card').offsetWidth === w", arg=size["width"]
        )
        await page.reload()
        await expect(card(page, "Mine")).to_be_visible()
        again = await place(card(page, "Mine"))
        assert (again["width"], again["height"]) == (size["width"], size["height"])
        assert easel.kept(mine) == {"x": 160, "y": 240, "width": size["width"], "height": size["height"]}


async def test_what_can_be_dragged_can_be_keyed(stack: PageStack) -> None:
    async with studio(stack, "Keys") as easel, stack.page() as page:
        mine = await easel.draw("Mine", block("note", content="Key me."))
        mover = card(page, "Mine").get_by_role("button", name="Move Mine")
        # Its own words would come after those of the keys.
        await expect(page.locator("#announce")).to_have_text("Sprite has finished.")
        await mover.focus()
        for key in ("ArrowRight", "ArrowRight", "Shift+ArrowDown"):
            await page.keyboard.press(key)
        await expect(page.locator("#announce")).to_contain_text("Mine: 32 across, 64 down")
        await page.keyboard.press("Escape")
        await expect(page.locator("#announce")).to_contain_text("back in its place")
        assert easel.kept(mine) == {}
        await page.keyboard.press("Shift+ArrowRight")
        await page.keyboard.press("Enter")
        await expect(page.locator("#announce")).to_contain_text("Mine moved to 64 across, 0 down")
        await page.keyboard.press("Tab")
        await card(page, "Mine").get_by_role("button", name="Resize Mine").focus()
        wide = (await place(card(page, "Mine")))["width"]
        await page.keyboard.press("ArrowRight")
        await page.keyboard.press("ArrowDown")
        await page.keyboard.press("Enter")
        await expect(page.locator("#announce")).to_contain_text(f"{wide + 16} wide")
        await page.wait_for_function("w => document.querySelector('.canvas-card').offsetWidth === w", arg=wide + 16)
        await eventually(lambda: easel.kept(mine).get("width") == wide + 16, "the server keeps its size")
        kept = easel.kept(mine)
        assert (kept["x"], kept["y"]) == (64, 0)


async def test_a_move_that_is_not_kept_goes_back_and_says_why(stack: PageStack) -> None:
    def full(route: WebSocketRoute) -> None:
        server = route.connect_to_server()
        server.on_message(route.send)

        def pass_on(frame: str | bytes) -> None:
            message = json.loads(frame)
            if message["type"] != "canvas_interaction":
                server.send(frame)
                return
            refusal = {"code": "storage", "message": "The disk is full."}
            route.send(json.dumps({"type": "error", "id": "e", "reply_to": message["id"], "payload": refusal}))

        route.on_message(pass_on)

    async with studio(stack, "Full") as easel, stack.context() as context:
        await easel.draw("Mine", block("note", content="Key me."))
        await context.route_web_socket("**/ws", full)
        page = await stack.open(context)
        before = await place(card(page, "Mine"))
        await card(page, "Mine").get_by_role("button", name="Move Mine").focus()
        await page.keyboard.press("Shift+ArrowDown")
        await page.keyboard.press("Enter")
        await expect(page.locator(".toast")).to_contain_text("“Mine” went back to its place: The disk is full.")
        assert await place(card(page, "Mine")) == before


async def test_on_a_phone_cards_stand_in_one_column(stack: PageStack) -> None:
    async with studio(stack, "Phone") as easel:
        placed = await easel.draw("Far right", block("note", content="There."))
        await easel.interact(
            action="move_card", card_id=placed, position={"x": 1200, "y": 0}, size={"width": 600, "height": 300}
        )
        await easel.draw("Table", block("table", columns=list("abcdefgh"), rows=[["some words"] * 8] * 3))
        async with stack.page(viewport={"width": 390, "height": 780}, has_touch=True) as page:
            await page.get_by_role("tab", name="Canvas").last.click()
            await expect(page.locator(".canvas-card")).to_have_count(2)
            boxes = [await place(found) for found in await page.locator(".canvas-card").all()]
            assert not overlaps(boxes)
            assert {box["x"] for box in boxes} == {boxes[0]["x"]}
            assert all(box["x"] >= 0 and box["x"] + box["width"] <= 390 for box in boxes)
            assert await page.evaluate("() => document.documentElement.scrollWidth") == 390
            await expect(page.get_by_role("button", name="Move Table")).to_be_hidden()
            assert await violations(page) == []
            await shoot(page, "canvas-phone")


async def test_a_change_out_of_sight_is_told_and_never_scrolls_by_itself(stack: PageStack) -> None:
    async with studio(stack, "Tall") as easel, stack.page(viewport={"width": 900, "height": 500}) as page:
        await easel.draw_all(*(f"Note {number}" for number in range(8)))
        await expect(page.locator(".canvas-card")).to_have_count(8)
        # It is told for some seconds, which may be over before the turn that draws is.
        drawing = asyncio.create_task(easel.draw("Last of all", block("note", content="Down here.")))
        news = page.get_by_role("button", name="“Last of all” is new or has changed. Show it")
        await expect(news).to_be_visible()
        assert await page.locator(".board").evaluate("e => e.scrollTop") == 0
        await news.click()
        await expect(card(page, "Last of all")).to_be_focused()
        await expect(card(page, "Last of all")).to_be_in_viewport()
        await expect(news).to_be_hidden()
        await drawing


# --- tables ---


async def test_a_table_sorts_by_its_heads_and_copies_what_it_shows(stack: PageStack) -> None:
    async with studio(stack, "Sorting") as easel:
        rows_: list[list[Any]] = [
            ["Oslo", "$1,200", 10],
            ["Rome", "$980", 2.5],
            ['Łódź "x"', None, 300],
            ["=1+1", "-5%", 4],
        ]
        await easel.draw("Cities", block("table", columns=["City", "Cost", "People"], rows=rows_))
        async with stack.page(permissions=["clipboard-read", "clipboard-write"]) as page:
            table = card(page, "Cities")
            first = table.locator("tbody td:first-child")
            await table.get_by_role("button", name="People").click()
            await expect(first).to_have_text(["Rome", "=1+1", "Oslo", 'Łódź "x"'])
            await expect(table.get_by_role("columnheader", name="People")).to_have_attribute("aria-sort", "ascending")
            await table.get_by_role("button", name="Cost").click()
            await table.get_by_role("button", name="Cost").click()
            # Largest first; what is empty is last either way.
            await expect(first).to_have_text(["Oslo", "Rome", "=1+1", 'Łódź "x"'])
            await table.get_by_role("button", name="Copy as CSV").click()
            await expect(page.locator(".toast")).to_contain_text("One cell looks like a formula")
            copied = await page.evaluate("() => navigator.clipboard.readText()")
            assert copied.split("\r\n") == [
                '"City","Cost","People"',
                '"Oslo","$1,200","10"',
                '"Rome","$980","2.5"',
                '"=1+1","-5%","4"',
                '"Łódź ""x""","","300"',
                "",
            ]
            await table.get_by_role("button", name="Cost").click()
            await expect(first).to_have_text([str(row[0]) for row in rows_])
            # Figures stand with their points below each other.
            ends = await table.locator("tbody td:last-child").evaluate_all(
                "cells => cells.map(c => { const r = document.createRange(); r.setStart(c.firstChild, 0); "
                "r.setEnd(c.firstChild, c.textContent.split(/[.\\u2008]/)[0].length); "
                "return Math.round(r.getBoundingClientRect().right) })"
            )
            assert len(set(ends)) == 1


async def test_ten_thousand_rows_are_a_few_elements_and_all_of_them_can_be_reached(stack: PageStack) -> None:
    async with studio(stack, "Large") as easel:
        rows_ = [[number, f"Customer {number * 7919 % 10007}", number % 1000 / 10] for number in range(10_000)]
        await easel.draw("Customers", block("table", columns=["Id", "Name", "Amount"], rows=rows_), card_type="table")
        async with stack.page() as page:
            table = card(page, "Customers")
            await expect(table).to_contain_text("10,000 rows")
            assert await table.locator("tbody tr").count() < 100
            assert (await place(table))["height"] <= 480
            await table.locator(".table-scroll").evaluate("e => e.scrollTo(0, e.scrollHeight)")
            await expect(table.locator("tbody td", has_text="9999").first).to_be_visible()
            await expect(table.locator("tr[aria-rowindex='10001']")).to_have_count(1)
            await table.get_by_role("button", name="Id", exact=True).click()
            await table.get_by_role("button", name="Id", exact=True).click()
            await table.locator(".table-scroll").evaluate("e => e.scrollTo(0, 0)")
            await expect(table.locator("tbody tr:not(.spacer) td").first).to_have_text("9999")
            assert await violations(page) == []


# --- stacks ---


async def test_stacks_are_tabs_to_create_rename_archive_and_restore_on_every_page(stack: PageStack) -> None:
    async with studio(stack, "Garden") as easel, stack.page() as page, stack.page() as second:
        await easel.draw("Roses", block("note", content="Red."))
        await page.get_by_role("button", name="New stack").click()
        await page.get_by_role("textbox", name="Name").fill("Kitchen")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("tab", name="Kitchen")).to_have_attribute("aria-selected", "true")
        await expect(second.get_by_role("tab", name="Kitchen")).to_be_visible()
        await page.get_by_role("button", name="Rename stack Kitchen").click()
        await page.get_by_role("textbox", name="Name").fill("Cellar")
        await page.keyboard.press("Enter")
        await expect(second.get_by_role("tab", name="Cellar")).to_be_visible()
        await page.get_by_role("tab", name="Cellar").focus()
        await page.keyboard.press("ArrowLeft")
        await expect(page.get_by_role("tab", name="Garden")).to_be_focused()
        await expect(card(page, "Roses")).to_be_visible()
        await page.get_by_role("button", name="Archive stack Garden").click()
        await expect(second.get_by_role("tab", name="Garden")).to_have_count(0)
        await page.get_by_role("button", name="Archived").click()
        assert await violations(page) == []
        await page.get_by_role("button", name="Restore Garden").click()
        await page.get_by_role("button", name="Close").click()
        await expect(card(page, "Roses")).to_be_visible()
        await expect(second.get_by_role("tab", name="Garden")).to_be_visible()


async def test_a_card_taken_off_the_canvas_comes_back_by_one_click(stack: PageStack) -> None:
    async with studio(stack, "Undo") as easel, stack.page() as page, stack.page() as second:
        await easel.draw("Mine", block("note", content="Keep me."))
        await expect(card(second, "Mine")).to_be_visible()
        await card(page, "Mine").hover()
        await card(page, "Mine").get_by_role("button", name="Archive Mine").click()
        # Under the pointer the offer stays.
        await page.get_by_role("button", name="Undo", exact=True).hover()
        await expect(card(second, "Mine")).to_have_count(0)
        await page.get_by_role("button", name="Undo", exact=True).click()
        await expect(card(page, "Mine")).to_be_visible()
        await expect(card(second, "Mine")).to_be_visible()


async def test_the_palette_finds_a_card_on_another_stack_and_brings_the_keyboard_to_it(stack: PageStack) -> None:
    async with studio(stack, "Far away") as easel, studio(stack, "In front"), stack.page() as page:
        await easel.draw("Needle in the hay", block("note", content="Found."))
        await page.get_by_role("tab", name="In front").click()
        await page.keyboard.press("Control+k")
        await expect(page.get_by_role("combobox")).to_be_focused()
        await page.keyboard.type("needle")
        await page.get_by_role("option", name="Needle in the hay").click()
        await expect(card(page, "Needle in the hay")).to_be_focused()
