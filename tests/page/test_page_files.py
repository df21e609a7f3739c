"""The person's own files on the page: listed, looked at where nothing of them can run, downloaded and deleted."""

from __future__ import annotations

import asyncio
import os
import struct
import zlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, Page, Request, expect

from tests.page_harness import PageStack, ask, needs_chromium, page_stack, shoot, violations

pytestmark = [needs_chromium(), pytest.mark.asyncio(loop_scope="session")]

#: Whatever of it ran would be seen in the title, or as a request.
LEAK = "document.title='ran';fetch('/leaked');new Image().src='/leaked'"
HOSTILE_HTML = f'<title>still</title><script>{LEAK}</script><img src=/leaked onerror="{LEAK}">'
HOSTILE_SVG = (
    "<svg xmlns='http://www.w3.org/2000/svg' width='80' height='40'><title>still</title>"
    f"<script>{LEAK}</script><image href='/leaked' width='1' height='1'/>"
    "<rect width='80' height='40' fill='teal'/></svg>"
)


#: Of a picture, once it is there.
NATURAL_WIDTH = "e => e.complete ? e.naturalWidth : new Promise(r => { e.onload = () => r(e.naturalWidth) })"


def picture(width: int, height: int) -> bytes:
    """A PNG of one colour."""
    lines = (b"\0" + b"\x30\x80\xc0" * width) * height

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(lines)) + chunk(b"IEND", b"")


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stack(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> AsyncIterator[PageStack]:
    async with page_stack(browser, tmp_path_factory.mktemp("files"), "--permissions", "bypass") as found:
        put(found.workspace)
        yield found
        assert found.complaints == []


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
    await panel.get_by_role("tab", name="Documents").click()
    await expect(panel.get_by_role("button", name="notes.md", exact=True)).to_be_visible()
    return panel


async def looked_at(page: Page, panel: Locator, name: str) -> Locator:
    await panel.get_by_role("button", name=name, exact=True).click()
    return page.get_by_role("dialog")


async def test_files_are_listed_and_looked_at(stack: PageStack) -> None:
    """A text, a picture, the beginning of a log, and what has to be downloaded; on a phone, too."""
    async with stack.page() as page:
        panel = await files(page)
        headings = await panel.locator(".user-files h3").all_inner_texts()
        assert [text.partition("/")[0].split()[-1] for text in headings] == [
            "documents",
            "artifacts",
            "extractions",
            "ocr",
        ]
        given = panel.get_by_role("region", name="What you gave").get_by_role("listitem")
        assert [words.split("\n")[0] for words in await given.all_inner_texts()] == [
            "lease 2026.pdf",
            "notes.md",
            "archive.zip",
        ]
        await expect(panel).to_contain_text("app/node_modules/")
        await expect(panel).to_contain_text("r\ufffdgnp.exe")
        await shoot(page, "files")
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
        # Browsers complain of the status that says that a file cannot be shown.
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
        await page.emulate_media(color_scheme="dark")
        assert await violations(page) == []
        await shoot(page, "files-phone")
        await page.emulate_media(color_scheme="light")


async def test_nothing_of_a_file_runs_and_nothing_of_it_reaches_the_page(stack: PageStack) -> None:
    asked: list[str] = []

    def note(request: Request) -> None:
        asked.append(request.url)

    async with stack.page() as page:
        page.context.on("request", note)
        panel = await files(page)
        shown = await looked_at(page, panel, "report.html")
        await expect(shown.locator("pre")).to_have_text(HOSTILE_HTML)
        await page.keyboard.press("Escape")
        shown = await looked_at(page, panel, "drawing.svg")
        assert await shown.locator("img").evaluate(NATURAL_WIDTH) == 80
        assert await page.title() != "ran"
        # Opened by itself, it is a text in no origin: no cookie, no storage, nothing of ours.
        for name in ("report.html", "drawing.svg"):
            await page.goto(f"{stack.bridge.url}/files/artifacts/{name}?preview")
            assert await page.evaluate("() => document.contentType") == "text/plain"
            assert await page.evaluate("() => self.origin") == "null"
            assert (
                await page.evaluate("() => { try { return document.cookie } catch { return 'refused' } }") == "refused"
            )
            assert await page.title() != "ran"
        # The same bytes under a picture's or a document's name.
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
    async with stack.page() as page:
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

        # The turn that followed the deletion has it, and as the person's, not as work of the agent's.
        await panel.get_by_role("tab", name="Timeline").click()
        turn = panel.locator("button.timeline-main", has_text="Good morning").first
        await expect(turn).to_contain_text("waits to be looked through")
        await expect(turn).not_to_contain_text("used")
        await turn.click()
        await expect(page.get_by_role("dialog")).to_contain_text("What you had done since the turn before")


async def test_a_card_shows_its_document(stack: PageStack) -> None:
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
    async with stack.page() as page:
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

        # A list that is asked for while nobody answers is there once somebody does.
        await stack.stop_bridge()
        await page.get_by_role("tab", name="Memory").locator("visible=true").click()
        panel = page.get_by_role("region", name="Memory")
        await panel.get_by_role("tab", name="Documents").click()
        await expect(panel).to_contain_text("Nothing is lost: memory lives with your sprite")
        await stack.start_bridge()
        await expect(panel.get_by_role("button", name="notes.md", exact=True)).to_be_visible()
    stack.complaints.clear()
