"""Actions and user files on the page: two lists of the Memory panel, in a real browser."""

from __future__ import annotations

import asyncio
import os
import struct
import time
import zlib
from collections.abc import AsyncIterator
from datetime import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, Page, Request, expect

from tests.bridge_harness import PageClient
from tests.harness import observations
from tests.inspection import memory
from tests.page_harness import PageStack, ask, needs_chromium, page_stack, shoot, violations

pytestmark = [needs_chromium(), pytest.mark.asyncio(loop_scope="session")]

HERE = "Europe/Berlin"
#: The time zone of a browser in Berlin; the tests share its window.
BERLIN: dict[str, Any] = {"timezone_id": HERE, "locale": "en-GB"}
#: Any execution of this text would show in the title or as a request.
LEAK = "document.title='ran';fetch('/leaked');new Image().src='/leaked'"
HOSTILE_HTML = f'<title>still</title><script>{LEAK}</script><img src=/leaked onerror="{LEAK}">'
HOSTILE_SVG = (
    "<svg xmlns='http://www.w3.org/2000/svg' width='80' height='40'><title>still</title>"
    f"<script>{LEAK}</script><image href='/leaked' width='1' height='1'/>"
    "<rect width='80' height='40' fill='teal'/></svg>"
)


#: The size of a picture, once it has loaded.
NATURAL_WIDTH = "e => e.complete ? e.naturalWidth : new Promise(r => { e.onload = () => r(e.naturalWidth) })"


def picture(width: int, height: int) -> bytes:
    """Return a PNG of one colour."""
    lines = (b"\0" + b"\x30\x80\xc0" * width) * height

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stack(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> AsyncIterator[PageStack]:
    async with page_stack(browser, tmp_path_factory.mktemp("lists"), "--permissions", "bypass") as found:
        put(found.workspace)
        yield found
        assert found.complaints == []


# --- actions ---


async def to_do(page: Page) -> Locator:
    """Open the action list; return the panel."""
    await page.get_by_role("tab", name="To do").locator("visible=true").click()
    return page.get_by_role("region", name="To do")


def action(stack: PageStack, words: str) -> dict[str, Any]:
    (found,) = memory(stack.workspace, "SELECT * FROM pending_actions WHERE content = ?", (words,))
    return found


async def test_action_is_changed_on_every_page(stack: PageStack) -> None:
    """Add one, see an error at its field, change it, and see it in another time zone, which is announced once."""
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
        await expect(form.get_by_role("alert")).to_have_text("Write what is to be done.")
        await form.get_by_label("What").fill("Water the ficus")
        await form.get_by_label("Day").fill("2020-01-01")
        await form.get_by_role("button", name="Add").click()
        await expect(form.get_by_role("alert")).to_contain_text("is in the past")
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
    """Check that a browser sends its time zone with its first message; an idle one does not."""

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
    """Failed ones come first; a repeat defined in words is changed together with its time."""
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
        # Memory and its stylesheet have not been loaded yet.
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

        asked = {
            "op": "add_action",
            "content": "Open the windows",
            "rrule": "weekday",
            "due": "tomorrow 7:30",
            "tz": HERE,
        }
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
        await page.get_by_role("tab", name="Memory").locator("visible=true").click()
        panel = page.get_by_role("region", name="Memory")
        await panel.get_by_role("tab", name="Timeline").click()
        told = panel.locator(".timeline-words")
        await expect(told.filter(has_text="You changed “Open the windows”")).to_be_visible()
        await expect(told.filter(has_text="You added “Open the windows”")).to_be_visible()


async def test_scheduled_promise_is_kept_once(stack: PageStack) -> None:
    """The agent schedules a request; when it is due, a turn starts by itself.

    A repeat stays open; a single action is done.
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


# --- files ---


def put(workspace: Path) -> None:
    files: dict[str, bytes] = {
        "documents/lease 2026.pdf": b"%PDF-1.4",
        "documents/notes.md": "# Caf\u00e9\n\nCall Mira about the lease.\n".encode(),
        "documents/archive.zip": bytes(3_000),
        "artifacts/report.html": HOSTILE_HTML.encode(),
        "artifacts/drawing.svg": HOSTILE_SVG.encode(),
        "artifacts/charts/rent by month.png": picture(320, 180),
        "artifacts/app/node_modules/x/index.js": b"x",
        "artifacts/long.log": b"0123456789abcde\n" * 20_000,
        "artifacts/r\u202egnp.exe": b"MZ",
        "ocr/lease 2026.txt": b"The lease",
        "extractions/lease 2026.json": b'{"rent": 1200}',
    }
    for number, (path, content) in enumerate(files.items()):
        target = workspace / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        os.utime(target, (1_760_000_000 - number, 1_760_000_000 - number))


async def files(page: Page) -> Locator:
    await page.get_by_role("tab", name="Memory").locator("visible=true").click()
    panel = page.get_by_role("region", name="Memory")
    await panel.get_by_role("tab", name="Files").click()
    await expect(panel.get_by_role("button", name="notes.md", exact=True)).to_be_visible()
    return panel


async def looked_at(page: Page, panel: Locator, name: str) -> Locator:
    await panel.get_by_role("button", name=name, exact=True).click()
    return page.get_by_role("dialog")


async def test_files_are_listed_and_previewed(stack: PageStack) -> None:
    """A text, a picture, the start of a log, and files that can only be downloaded; on a phone, too."""
    async with stack.page(**BERLIN) as page:
        panel = await files(page)
        headings = await panel.locator(".user-files h3").all_inner_texts()
        assert [text.partition("/")[0].split()[-1] for text in headings] == [
            "documents",
            "artifacts",
            "extractions",
            "ocr",
        ]
        given = panel.get_by_role("region", name="Documents", exact=True).get_by_role("listitem")
        assert [words.split("\n")[0] for words in await given.all_inner_texts()] == [
            "lease 2026.pdf",
            "notes.md",
            "archive.zip",
        ]
        await expect(panel).to_contain_text("app/node_modules/")
        await expect(panel).to_contain_text("r\ufffdgnp.exe")
        await shoot(page, "files")
        assert await violations(page) == []
        await panel.get_by_label("Find a file by its name").fill("LEASE")
        await expect(panel.get_by_role("listitem")).to_have_count(3)
        await panel.get_by_label("Find a file by its name").fill("nothing is called that")
        await expect(panel).to_contain_text("No file\u2019s name has these words.")
        await panel.get_by_label("Find a file by its name").fill("")

        shown = await looked_at(page, panel, "charts/rent by month.png")
        assert await shown.locator("img").evaluate(NATURAL_WIDTH) == 320
        await shoot(page, "files-picture")
        await shown.get_by_role("button", name="Close").click()
        shown = await looked_at(page, panel, "long.log")
        await expect(shown).to_contain_text("These are its first 256 KB.")
        await page.keyboard.press("Escape")
        shown = await looked_at(page, panel, "archive.zip")
        await expect(shown).to_contain_text("Download it to open it.")
        async with page.expect_download() as started:
            await shown.get_by_role("link", name="Download").click()
        downloaded = await started.value
        assert downloaded.suggested_filename == "archive.zip"
        assert await asyncio.to_thread(lambda path: path.read_bytes(), await downloaded.path()) == bytes(3_000)
        await page.keyboard.press("Escape")
        # Browsers log an error for the status of a file that cannot be shown.
        stack.complaints[:] = [words for words in stack.complaints if "415" not in words]

        shown = await looked_at(page, panel, "notes.md")
        await expect(shown.locator("pre")).to_have_text("# Caf\u00e9\n\nCall Mira about the lease.\n")
        assert await violations(page) == []
        await shoot(page, "files-text")
        await page.set_viewport_size({"width": 390, "height": 780})
        await shoot(page, "files-phone-text")
        await page.keyboard.press("Escape")
        await expect(panel.get_by_role("button", name="notes.md", exact=True)).to_be_focused()
        assert await page.evaluate("() => document.documentElement.scrollWidth") <= 390


async def test_file_content_cannot_run_or_reach_page(stack: PageStack) -> None:
    asked: list[str] = []

    def note(request: Request) -> None:
        asked.append(request.url)

    async with stack.page(**BERLIN) as page:
        page.context.on("request", note)
        panel = await files(page)
        shown = await looked_at(page, panel, "report.html")
        await expect(shown.locator("pre")).to_have_text(HOSTILE_HTML)
        await page.keyboard.press("Escape")
        shown = await looked_at(page, panel, "drawing.svg")
        assert await shown.locator("img").evaluate(NATURAL_WIDTH) == 80
        assert await page.title() != "ran"
        # Opened directly, it is text in an opaque origin: no cookies, no storage, no access to the page.
        for name in ("report.html", "drawing.svg"):
            await page.goto(f"{stack.bridge.url}/files/artifacts/{name}?preview")
            assert await page.evaluate("() => document.contentType") == "text/plain"
            assert await page.evaluate("() => self.origin") == "null"
            assert (
                await page.evaluate("() => { try { return document.cookie } catch { return 'refused' } }") == "refused"
            )
            assert await page.title() != "ran"
        # The same bytes with the file name of a picture or a document.
        for name in ("artifacts/fake.png", "artifacts/fake.pdf"):
            (stack.workspace / name).write_text(HOSTILE_HTML)
            await page.goto(f"{stack.bridge.url}/files/{name}?preview")
            assert await page.title() != "ran"
            (stack.workspace / name).unlink()
        page.context.remove_listener("request", note)
    assert asked
    assert not [url for url in asked if "leaked" in url]
    stack.complaints.clear()


async def test_list_follows_deletions_uploads_and_work(stack: PageStack) -> None:
    target = stack.workspace / "artifacts/old.csv"
    target.write_text("a,b\n")
    work = {"type": "tool_use", "name": "Bash", "input": {"command": "echo 1 > artifacts/made.csv"}}
    stack.model.script.agent({"match": "Make it", "on": "prompt", "blocks": [work]})
    async with stack.page(**BERLIN) as page:
        panel = await files(page)
        await panel.get_by_role("button", name="Delete old.csv").click()
        asked = page.get_by_role("dialog", name="Delete old.csv?")
        await expect(asked.get_by_role("button", name="Cancel")).to_be_focused()
        await asked.get_by_role("button", name="Cancel").click()
        assert target.exists()
        shown = await looked_at(page, panel, "old.csv")
        await shown.get_by_role("button", name="Delete").click()
        await asked.get_by_role("button", name="Delete").click()
        await expect(page.locator("#toasts")).to_contain_text("Deleted: old.csv")
        await expect(panel.get_by_role("button", name="old.csv", exact=True)).to_have_count(0)
        assert not target.exists()

        await ask(page, "Good morning")
        await ask(page, "Make it")
        await expect(panel.get_by_role("button", name="made.csv", exact=True)).to_be_visible()
        await page.locator("#chat input[type=file]").set_input_files(
            {"name": "sent.txt", "mimeType": "text/plain", "buffer": b"hello"}
        )
        await expect(panel.get_by_role("button", name="sent.txt", exact=True)).to_be_visible()

        # The turn after the deletion mentions it as the person's change, not as work of the agent.
        await panel.get_by_role("tab", name="Timeline").click()
        turn = panel.locator("button.timeline-main", has_text="Good morning").first
        await expect(turn).to_contain_text("not learned from yet")
        await expect(turn).not_to_contain_text("used")
        await turn.click()
        await expect(page.get_by_role("dialog")).to_contain_text("What you did since the previous turn")


async def test_card_shows_its_document(stack: PageStack) -> None:
    blocks = [
        {"type": "document", "data": {"path": "artifacts/charts/rent by month.png", "title": "The rent"}},
        {"type": "document", "data": {"path": "/workspace/documents/notes.md", "excerpt": "Call Mira."}},
    ]
    card = {"title": "Papers", "card_type": "document", "blocks": blocks}
    stack.model.script.agent(
        {
            "match": "Draw it",
            "on": "prompt",
            "blocks": [{"type": "tool_use", "name": "mcp__sprite__create_card", "input": card}],
        }
    )
    async with stack.page(**BERLIN) as page:
        await ask(page, "Draw it")
        papers = page.get_by_role("article", name="Papers")
        thumb = papers.locator("img")
        await expect(thumb).to_have_js_property("naturalWidth", 320)
        await shoot(page, "files-card")
        await papers.get_by_role("button", name="Preview notes.md").click()
        await expect(page.get_by_role("dialog").locator("pre")).to_contain_text("Call Mira about the lease.")
        await page.keyboard.press("Escape")
        await papers.get_by_role("button", name="Preview The rent").click()
        await expect(page.get_by_role("dialog").locator("img")).to_be_visible()
        await page.keyboard.press("Escape")


@pytest.mark.soak  # The same in the light theme and on a wide window: above.
async def test_lists_are_accessible_on_dark_phone(stack: PageStack) -> None:
    async with stack.page(**BERLIN, viewport={"width": 390, "height": 844}, color_scheme="dark") as page:
        panel = await to_do(page)
        await panel.get_by_role("button", name="Add something to do").click()
        await expect(panel.get_by_role("form", name="Something to do")).to_be_visible()
        assert await violations(page) == []
        await shoot(page, "actions-dark-phone")
        await files(page)
        assert await violations(page) == []
        await shoot(page, "files-phone")
