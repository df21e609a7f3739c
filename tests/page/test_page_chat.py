"""The page's chat and shell in a real browser, on the real stack.

The file is long because its tests share one stack and one window.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import signal
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, FilePayload, Page, expect

from bridge.providers.child import Child
from tests.bridge_harness import BridgeServer, running_bridge
from tests.harness import PATIENCE, ROOT, observations
from tests.page_harness import PageStack, ask, needs_chromium, page_stack, ready, say, settled, shoot, violations
from tests.postgres import own_server

pytestmark = [pytest.mark.asyncio(loop_scope="session"), needs_chromium()]

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
PHONE = {"width": 390, "height": 780}
STORY = "\n\n".join(
    [
        "# A long story",
        "Once there was a **sprite** that lived on its own computer.",
        "1. It listened.\n2. It drew.\n   - cards\n   - tables",
        "```python\ndef remember(turn):\n    log.append(turn)\n```",
        "| item | value |\n|---|--:|\n| apples | 3 |",
        *(f"Chapter {number}: it remembered what it had been told, and wrote it down." for number in range(1, 30)),
        "The end.",
    ]
)
HOSTILE = "\n\n".join(
    [
        "<script>window.harmed = 1</script>",
        '<img src=x onerror="window.harmed = 1">',
        "[run](javascript:window.harmed=1) [data](data:text/html,<script>1</script>) ![image](javascript:1)",
        "![far](https://far.example/pixel.png) [up](documents/../../secret)",
        "[ok](https://far.example/) [file](artifacts/a%20b.txt)",
        "| a |\n|---|\n| <svg onload=window.harmed=1> |",
        "`<b>code</b>` &lt;b&gt; &#x3C;script&#x3E;",
        "[ref]: javascript:window.harmed=1",
        "> " * 3000 + "deep",
        "hostile end",
    ]
)
#: The transferred bytes of the page.
LOADED = """() => [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]
    .reduce((sum, entry) => sum + entry.encodedBodySize, 0)"""
#: The visible buttons that are too low for a finger; links in text are none.
SMALL_BUTTONS = """() => [...document.querySelectorAll("button:not(.link)")].filter((each) =>
    each.checkVisibility() && each.getBoundingClientRect().height < 40).map((each) => each.outerHTML)"""
#: A file dropped on the chat, as the browser itself delivers it.
DROP = """() => {
    const dataTransfer = new DataTransfer();
    dataTransfer.items.add(new File(['dropped'], 'note.txt', { type: 'text/plain' }));
    const drop = new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true });
    document.querySelector(".thread").dispatchEvent(drop);
}"""
#: The scroll position of a box, once it has settled.
AT_REST = """box => new Promise((done) => {
    let before = -1;
    const look = () => {
        if (box.scrollTop === before) return done(before);
        before = box.scrollTop;
        setTimeout(look, 200);
    };
    look();
})"""
#: A command that displays differently from what it runs, with its true target after 3,000 characters.
ODD = f"echo <private>\u202eolleh\u2066 \u200b; # {'a comment ' * 300}\n\ttouch at-the-end.txt; echo </private>"
#: One red pixel.
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
PICTURES = "![A pixel](artifacts/pixel.png) ![Elsewhere](https://example.com/a.png) ![Up](documents/../a.png)"
MATHS = r"""For \(a^2 + b_1\) and $5 and $6:

$$
\frac{a}{b}
= c
$$

\[ \sum_{i=1}^n i \]

\(\undefined{\) and \(\href{javascript:harm()}{x}\)

```python
def double(x):
    return 2 * x
```
"""
#: The file below the stack's folder that the second half of the story waits for.
GO_ON = "go-on"
STEPS: list[dict[str, Any]] = [
    {"match": "be odd", "tool": "Bash", "input": {"command": ODD, "description": "Says hello"}, "on": "prompt"},
    {
        "match": "write it down",
        "tool": "Write",
        "input": {"content": "one\nfile_path: harmless.txt\x1b[2K\r\n", "file_path": "documents/noted.txt"},
        "on": "prompt",
    },
    {"match": "be hostile", "text": HOSTILE, "times": -1, "on": "prompt"},
    {"match": "show pictures", "text": PICTURES, "on": "prompt"},
    {"match": "show maths", "text": MATHS, "on": "prompt"},
    {"match": "take long", "hang": True, "times": -1, "on": "prompt"},
    {"match": "fail always", "error": 400, "type": "invalid_request_error", "message": "No, not this.", "times": -1},
]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stack(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> AsyncIterator[PageStack]:
    """Run one bridge and browser for all tests here; the agents ask before they act."""
    folder = tmp_path_factory.mktemp("page")
    story = {"match": "tell a story", "text": STORY, "chunk_delay": 0.02, "until": str(folder / GO_ON), "times": -1}
    steps = [*STEPS, {**story, "on": "prompt"}]
    async with page_stack(
        browser, folder, "--permissions", "ask", steps=steps, SPRITE_TESTS_EGRESS_INSIDE="1", SPRITE_EGRESS="ask"
    ) as stack:
        yield stack
        assert stack.complaints == []


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def page(stack: PageStack) -> AsyncIterator[Page]:
    """Open one window for all tests without special needs. Each test leaves it idle, with an empty field."""
    async with stack.page() as page:
        yield page


def last(page: Page, text: str) -> Any:
    """Return the newest exchange with this text."""
    return page.locator(".thread-list .exchange", has_text=text).last


async def is_working(page: Page) -> None:
    await expect(page.locator(".run-state")).to_have_attribute("data-kind", "busy")


async def test_first_visit_loads_little_and_draws_card(page: Page) -> None:
    """The bar is not cut off at any width."""
    await page.wait_for_load_state("networkidle")
    assert 10_000 < await page.evaluate(LOADED) <= 120_000
    await expect(page.get_by_role("heading", name="What shall we work on?")).to_be_visible()
    await expect(page.locator(".welcome")).to_contain_text("Sprite works on this computer")
    await shoot(page, "first-visit")
    await bar_fits_every_width(page)
    await page.get_by_role("button", name="Draw a card").click()
    await page.keyboard.press("Enter")
    await settled(page, "plums 12")
    await expect(page.get_by_role("cell", name="plums")).to_be_visible()
    row = last(page, "plums 12").locator("details.tool")
    await expect(row).to_contain_text("Drew a card")
    await row.locator("summary").click()
    await expect(row).to_contain_text("apples")
    await expect(page.locator("#composer-text")).to_have_value("")
    await shoot(page, "conversation-with-a-card")


async def bar_fits_every_width(page: Page) -> None:
    """Check that no button of the bar is cut off in any window."""
    for width in (701, 720, 760, 900, 989, 1040, 1280):
        await page.set_viewport_size({"width": width, "height": 800})
        cut_off = await page.evaluate(
            "() => [...document.querySelectorAll('button, [role=tab]')].filter((each) => each.checkVisibility()"
            " && each.getBoundingClientRect().right > innerWidth).map((each) => each.textContent)"
        )
        assert cut_off == [], width
        await expect(page.get_by_role("button", name="New session")).to_be_in_viewport()
    await shoot(page, "bar")
    await page.set_viewport_size({"width": 1280, "height": 800})


async def test_phone_shows_news_until_signed_out(stack: PageStack) -> None:
    # It has its own login, since the test ends it.
    _, printed, _ = await stack.bridge.run("users", "link", "local")
    cookie = await stack.bridge.login(next(word for word in printed.split() if "/login?token=" in word))
    async with stack.context(viewport=PHONE, has_touch=True, is_mobile=True) as window:
        name, _, value = cookie.partition("=")
        await window.add_cookies([{"name": name, "value": value, "url": stack.bridge.url}])
        page = await stack.open(window)
        await expect(page.locator("#canvas")).to_be_hidden()
        await page.fill("#composer-text", "Make a table of cherries 7 and figs 9")
        await page.locator(".send").tap()
        await settled(page, "cherries 7")
        tab = page.locator("#tab-canvas-narrow")
        await expect(tab).to_have_attribute("data-unread", "true")
        await expect(page.locator("#canvas")).to_be_hidden()
        await shoot(page, "phone")
        assert await page.evaluate(SMALL_BUTTONS) == []
        assert await page.evaluate("() => document.documentElement.scrollWidth") <= PHONE["width"]
        await tab.tap()
        await expect(page.locator("#canvas").get_by_text("cherries").first).to_be_visible()
        await expect(tab).not_to_have_attribute("data-unread", "true")
        async with stack.bridge.http() as other:
            headers = {"Cookie": cookie, "Origin": stack.bridge.url}
            async with other.post("/logout", headers=headers, allow_redirects=False) as response:
                assert response.status < 400
        await expect(page.get_by_role("heading", name="You are signed out")).to_be_visible()
        await expect(page.get_by_role("button", name="Sign in again")).to_be_focused()
        assert await violations(page) == []
        await page.get_by_role("button", name="Sign in again").click()
        await expect(page.get_by_text("Please log in")).to_be_visible()


async def test_new_session_and_restart_lose_nothing(stack: PageStack, page: Page) -> None:
    """Nothing is duplicated either, on any of the person's pages."""
    other = await stack.open(page.context)
    await ask(page, "My name is Ada, and I prefer tea to coffee.")
    await settled(other, "My name is Ada")
    said = await page.locator(".prose, .bubble").all_text_contents()
    assert said == await other.locator(".prose, .bubble").all_text_contents()
    turns = await page.locator(".session-words").text_content()
    for _ in range(2):
        await page.get_by_role("button", name="New session").click()
        undo = page.get_by_role("button", name="Undo")
        await expect(undo).to_be_visible()
        await expect(page.locator(".session-words")).to_have_text("Sessions")
        if _ == 0:
            await undo.click()
            await expect(page.locator(".session-words")).to_have_text(str(turns))
    learned = page.locator(".notice.learned")
    await expect(learned).to_contain_text("prefers tea")
    await expect(learned).to_contain_text("Why? shows its source")

    await stack.stop_bridge()
    for each, words in ((page, "Written while nobody was there"), (other, "Left behind in a closed window")):
        await expect(each.locator(".link-words")).to_have_text("Reconnecting")
        await say(each, words)
        await expect(each.locator(".unsent-item")).to_contain_text("Will be sent when your agent is reachable")
    await other.close()
    await stack.start_bridge()
    await ready(page)
    await settled(page, "Written while nobody was there")
    await expect(page.locator(".unsent-item")).to_have_count(0)
    for words in ("My name is Ada", "Written while nobody was there"):
        assert await page.locator(".exchange", has_text=words).count() == 1
    # A draft of a closed window is never sent by itself, and is not lost either.
    await page.reload()
    await ready(page)
    await expect(learned).to_contain_text("prefers tea")
    await expect(page.locator(".notice.rule").first).to_contain_text("New session, ")
    left = page.locator(".unsent-item", has_text="Left behind in a closed window")
    await expect(left).to_contain_text("Not sent")
    await left.get_by_role("button", name="Send again").click()
    await settled(page, "Left behind in a closed window")
    asked = [row["user_message"] for row in observations(stack.workspace)]
    assert asked.count("Written while nobody was there") == 1
    assert asked.count("Left behind in a closed window") == 1


async def test_sessions_are_listed_renamed_and_resumed(page: Page) -> None:
    await page.locator(".session-words").click()
    dialog = page.get_by_role("dialog", name="Sessions")
    now, earlier = dialog.locator(".session-row").nth(0), dialog.locator(".session-row").nth(1)
    await expect(now).to_contain_text("Open now")
    assert await violations(page) == []
    await earlier.get_by_role("button", name="Rename").click()
    renaming = page.get_by_role("dialog", name="Rename the session")
    await renaming.get_by_label("Title").fill("About tea")
    await renaming.get_by_role("button", name="Save").click()
    await expect(earlier.locator(".session-title")).to_have_text("About tea")
    await shoot(page, "sessions")
    await earlier.locator(".session-title").click()
    await expect(page.locator(".exchange:focus")).to_be_in_viewport()
    await page.locator(".session-words").click()
    await earlier.get_by_role("button", name="Resume").click()
    await ask(page, "What do you remember about me?")
    await expect(page.locator(".notice.rule").last).to_contain_text("Session continued, ")
    await ask(page, "Search memory for tea.")
    found = last(page, "Search memory for tea").locator("details.found")
    for _ in range(2):
        await expect(found).to_contain_text("Found for this answer")
        # Notices may still move the row, and a click that starts and ends on different elements does nothing.
        await found.locator("summary").press("Enter")
        await expect(found.locator("li").filter(has_text="tea").first).to_be_visible()
        await expect(found).to_contain_text("Also given to the agent")
        await page.reload()
        await ready(page)


async def test_settings_gather_every_choice(page: Page) -> None:
    await page.get_by_role("button", name="Settings").click()
    dialog = page.get_by_role("dialog", name="Settings")
    await dialog.get_by_role("button", name="Check the model").click()
    await expect(dialog.get_by_role("status")).to_contain_text("The model works")
    await expect(dialog.get_by_role("heading", level=3)).to_have_count(12)
    await expect(dialog).to_contain_text(re.compile(r"Today: \$[\d.]+ for the agent and memory"))
    await dialog.get_by_label("Name of the new token").fill("my editor")
    await dialog.get_by_role("button", name="Make a token").click()
    await expect(dialog.locator(".secret")).to_contain_text("bridge-person-")
    token = dialog.get_by_role("listitem").filter(has_text="my editor")
    await expect(token).to_contain_text("read memory, add turns, add to-dos · never used")
    async with page.expect_download() as download:
        await dialog.get_by_role("link", name="Download").click()
    assert (await download.value).suggested_filename == "local.zip"
    await dialog.get_by_role("button", name="Dark").click()
    await expect(page.locator("html[data-theme=dark]")).to_be_attached()
    assert await violations(page) == []
    await shoot(page, "settings")
    await token.get_by_role("button", name="Revoke my editor").click()
    await expect(token).to_have_count(0)
    await dialog.get_by_role("button", name="System").click()
    await dialog.get_by_role("button", name="Close").click()


async def test_slash_command_is_never_sent(stack: PageStack, page: Page) -> None:
    async def enter(words: str) -> None:
        await page.fill("#composer-text", words)
        await page.keyboard.press("Enter")

    await ask(page, "I live in Lyon.")
    await enter("/model opus")
    await expect(page.locator(".composer-note")).to_contain_text("Commands are for the terminal.")
    await expect(page.locator("#composer-text")).to_have_value("/model opus")
    await enter("/flush")
    await expect(page.locator("#composer-text")).to_have_value("")
    await expect(page.get_by_role("region", name="Messages").get_by_text("Learned ")).to_be_visible()
    await enter("/new")
    await expect(page.get_by_role("button", name="Undo")).to_be_visible()
    await ask(page, "/etc/hosts is a file")
    asked = [row["user_message"] for row in observations(stack.workspace)]
    assert asked[-2:] == ["I live in Lyon.", "/etc/hosts is a file"]


async def test_refused_message_is_kept_with_reason(page: Page) -> None:
    await ask(page, "fail always")
    refused = last(page, "fail always").locator(".problem")
    await expect(refused).to_contain_text("The model's API refused the request as invalid.")
    await refused.get_by_role("button", name="Change it").click()
    await expect(page.locator("#composer-text")).to_have_value("fail always")
    await page.fill("#composer-text", "x" * 300_000)
    await page.locator(".send").click()
    await expect(page.locator(".composer-note")).to_contain_text("200,000 fit")
    await expect(page.locator(".unsent-item")).to_have_count(0)
    assert await page.evaluate("() => document.querySelector('#composer-text').value.length") == 300_000
    await page.fill("#composer-text", "")


async def test_uploads_are_inert_and_large_ones_refused(stack: PageStack, page: Page, tmp_path: Path) -> None:
    huge = tmp_path / "huge.bin"
    with huge.open("wb") as file:
        file.truncate(101 * 2**20)
    name = "<img src=x onerror=window.harmed=1>.txt"
    picker = page.locator("input[type=file]")
    await picker.set_input_files(FilePayload(name=name, mimeType="text/plain", buffer=b"planted" * 100_000))
    await expect(page.locator(".upload[data-state=done]")).to_be_visible()
    await picker.set_input_files(huge)
    await expect(page.locator(".upload[data-state=failed]")).to_contain_text("a file may have 100 MB")
    assert await violations(page) == []
    await page.get_by_role("button", name="Remove huge.bin").click()
    await page.evaluate(DROP)
    await expect(page.locator(".upload[data-state=done]")).to_have_count(2)
    await ask(page, "Here is a file")
    await expect(last(page, "Here is a file").locator(".bubble")).to_contain_text("Files: documents/")
    assert await page.evaluate("() => window.harmed") is None
    stored = sorted((stack.workspace / "documents").iterdir(), key=lambda path: path.stat().st_size)
    assert [path.read_bytes() for path in stored] == [b"dropped", b"planted" * 100_000]


async def test_keyboard_alone_reaches_everything(page: Page) -> None:
    """Checked in the dark and in the light theme: both have contrast."""
    await page.emulate_media(color_scheme="dark")
    await page.reload()
    await ready(page)
    await page.keyboard.press("Tab")
    await expect(page.get_by_text("Skip to the message field")).to_be_focused()
    await page.keyboard.press("Enter")
    await expect(page.locator("#composer-text")).to_be_focused()
    await page.keyboard.type("Hello by keys")
    await page.keyboard.press("Enter")
    await settled(page, "Hello by keys")
    await shoot(page, "dark")
    await page.keyboard.press("Control+k")
    await expect(page.get_by_role("combobox", name="Command")).to_be_focused()
    await page.keyboard.type("go to mem")
    assert await violations(page) == []
    await page.keyboard.press("Enter")
    await expect(page.locator("#memory")).to_be_visible()
    await page.keyboard.press("F6")
    await expect(page.locator("#composer-text")).to_be_focused()
    dark = await page.evaluate("() => getComputedStyle(document.body).backgroundColor")
    await page.keyboard.press("Control+k")
    await page.keyboard.type("light")
    await page.keyboard.press("Enter")
    assert await page.evaluate("() => getComputedStyle(document.body).backgroundColor") != dark
    await page.locator("#divider").focus()
    chat = page.locator("#chat")
    before = await chat.evaluate("chat => chat.offsetWidth")
    await page.keyboard.press("ArrowRight")
    await page.keyboard.press("ArrowRight")
    assert await chat.evaluate("chat => chat.offsetWidth") == before + 48
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog", name="Keyboard shortcuts")).to_be_visible()
    assert await violations(page) == []
    await page.keyboard.press("Escape")
    await expect(page.locator("#divider")).to_be_focused()
    await page.keyboard.press("g")
    await page.keyboard.press("v")
    await expect(page.locator("#canvas")).to_be_visible()
    await page.emulate_media(color_scheme="light")


async def test_streamed_story_survives_reload_and_scrolling(stack: PageStack, page: Page) -> None:
    """A reload during the answer loses nothing; the page scrolls along only while the person is at the end."""
    await say(page, "tell a story")
    reply = last(page, "tell a story")
    await expect(reply).to_contain_text("Chapter 3")
    await page.reload()
    await ready(page)
    await expect(reply.get_by_role("heading", name="A long story")).to_be_attached()
    await expect(page.get_by_role("button", name="Stop")).to_be_visible()
    await expect(reply).to_contain_text("Chapter 10")
    box = page.locator(".thread")
    await box.hover()
    await page.mouse.wheel(0, -400)
    await expect(page.get_by_role("button", name="Jump to latest")).to_be_visible()
    before = await box.evaluate(AT_REST)
    (stack.data.parent / GO_ON).touch()
    await expect(reply).to_contain_text("Chapter 20")
    assert await box.evaluate("box => box.scrollTop") == before
    await page.get_by_role("button", name="Jump to latest").click()
    await expect(page.get_by_role("button", name="Jump to latest")).to_be_hidden()
    await expect(reply).to_contain_text("The end.")
    await settled(page, "tell a story")
    assert await box.evaluate("box => box.scrollHeight - box.scrollTop - box.clientHeight") < 2
    whole = await reply.locator(".prose").text_content() or ""
    assert [int(number) for number in re.findall(r"Chapter (\d+)", whole)] == list(range(1, 30))
    assert await reply.locator("li li").all_text_contents() == ["cards", "tables"]
    assert await reply.locator("td.right").text_content() == "3"
    await expect(page.get_by_role("button", name="Stop")).to_be_hidden()


async def test_mission_is_stopped_and_queue_edited(page: Page) -> None:
    await say(page, "take long, please")
    await is_working(page)
    await say(page, "the second message")
    await say(page, "the third message")
    await expect(page.locator(".exchange[data-status=queued]")).to_have_count(2)
    await last(page, "the third message").get_by_role("button", name="Edit").click()
    await expect(page.locator("#composer-text")).to_have_value("the third message")
    # The other mission still waits after a reload, and the draft is still there.
    await page.reload()
    await ready(page)
    await expect(page.locator(".exchange[data-status=queued]")).to_have_count(1)
    await expect(page.locator("#composer-text")).to_have_value("the third message")
    await last(page, "the second message").get_by_role("button", name="Remove").click()
    await expect(page.locator(".exchange[data-status=queued]")).to_have_count(0)
    await page.get_by_role("button", name="Stop").click()
    await settled(page, "take long, please")
    await expect(last(page, "take long, please")).to_contain_text("Stopped.")
    await expect(page.locator(".run-state")).to_have_attribute("data-kind", "idle")
    await expect(page.locator("#composer-text")).to_have_value("the third message")
    await page.fill("#composer-text", "")


async def test_always_rule_is_revoked_after_reload(stack: PageStack, page: Page) -> None:
    await say(page, "Please write it down")
    question = page.get_by_role("group", name="May Sprite write a file?")
    await expect(question).to_contain_text("harmless.txt")
    # A field shows its own value, whatever another one contains.
    assert await question.locator("dt").all_text_contents() == ["file_path", "content"]
    await expect(question.locator("dd").last).to_contain_text("file_path: harmless.txt<U+001B>[2K<U+000D>")
    await question.get_by_role("button", name="Don\u2019t allow").click()
    await settled(page, "Please write it down")

    await say(page, "Run `touch asked-once.txt`")
    always = page.get_by_role("button", name="Always allow this command")
    await expect(always).to_be_visible()
    await expect(page.locator(".run-words")).to_have_text("Waiting for your answer")
    row = last(page, "asked-once.txt").locator("details.tool").first
    await expect(row).to_contain_text("Wants to run a command")
    await expect(row).to_contain_text("waits for your answer")
    await shoot(page, "question-always")
    await page.reload()
    await ready(page)
    await always.click()
    await settled(page, "asked-once.txt")
    assert (stack.workspace / "asked-once.txt").exists()
    answered = page.locator(".question").last
    await expect(answered).to_contain_text("Always allowed: this command")
    await answered.get_by_role("button", name="What the agent may reach").click()
    dialog = page.get_by_role("dialog", name="What the agent may reach")
    await expect(dialog).to_contain_text("touch asked-once.txt")
    assert await violations(page) == []
    await shoot(page, "permissions")
    await dialog.get_by_role("button", name="Take back").click()
    await expect(dialog).to_contain_text("Sprite asks each time")
    await dialog.get_by_role("button", name="Close").click()
    await say(page, "Run `seq 300`")
    await page.get_by_role("button", name="Allow once").click()
    await settled(page, "seq 300")
    await page.reload()
    await ready(page)
    await expect(row).to_contain_text("always allowed")
    await expect(last(page, "Please write it down").locator("details.tool").first).to_contain_text("not allowed")
    # The whole result comes from the log.
    row = last(page, "seq 300").locator("details.tool").first
    await expect(row).to_contain_text("you allowed it")
    await row.locator("summary").click()
    await expect(row).to_contain_text("299")


async def test_host_is_allowed_and_taken_back(stack: PageStack, page: Page) -> None:
    """A program of the agent connects to a host. Taking the host back closes the connection."""

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1000):
            writer.write(data)
        writer.close()

    async def connects(host: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_unix_connection(stack.workspace / ".os/run/egress.sock")
        writer.write(f"CONNECT {host} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        return reader, writer

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    host = f"localhost:{server.sockets[0].getsockname()[1]}"
    await say(page, "take long, please")
    await is_working(page)
    reader, writer = await connects(host)
    question = page.get_by_role("group", name="May Sprite reach a host?").filter(has_text=host)
    await expect(question).to_contain_text(host)
    assert await violations(page) == []
    await shoot(page, "question-host")
    await expect(question.get_by_role("button")).to_have_text(
        ["Allow in this turn", "Allow in this session", f"Always allow {host}", "Don\u2019t allow"]
    )
    await question.get_by_role("button", name=f"Always allow {host}").click()
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    second, refused = await connects("example.org:443")
    await page.get_by_role("button", name="Don\u2019t allow").click()
    assert (await second.readline()).startswith(b"HTTP/1.1 403 The person does not allow example.org")

    await question.get_by_role("button", name="What the agent may reach").click()
    dialog = page.get_by_role("dialog", name="What the agent may reach")
    await expect(dialog).to_contain_text("1 open connection")
    await expect(dialog).to_contain_text("Sandbox: none: the agent can read all that you can read")
    await expect(dialog).to_contain_text("You always allow it, during \u201ctake long, please\u201d")
    await expect(dialog).to_contain_text("1 attempt")
    assert await violations(page) == []
    await shoot(page, "reach")
    await page.set_viewport_size({"width": 390, "height": 780})
    await shoot(page, "reach-phone")
    await page.set_viewport_size({"width": 1280, "height": 800})
    await dialog.get_by_role("button", name=f"Take back {host}").click()
    await expect(dialog.get_by_role("button", name="Take back")).to_have_count(0)
    await expect(dialog).not_to_contain_text("open connection")
    assert await reader.read() == b"\r\n"
    await dialog.get_by_role("button", name="Close").click()
    await page.get_by_role("button", name="Stop").click()
    await settled(page, "take long, please")
    for each in (writer, refused):
        each.close()
    server.close()


async def test_question_shows_every_character(stack: PageStack, page: Page) -> None:
    await say(page, "Now be odd")
    question = last(page, "Now be odd").get_by_role("group", name="May Sprite run a command?")
    await expect(question).to_contain_text("Says hello")
    command, description = await question.locator("dd pre").all_text_contents()
    marked = ODD.replace("\u202e", "<U+202E>").replace("\u2066", "<U+2066>")
    assert command == marked.replace("\u200b", "<U+200B>")
    assert description == "Says hello"
    await expect(question.locator(".unseen")).to_have_count(3)
    await expect(question.locator(".line-end")).to_have_count(1)
    await expect(question).to_contain_text("characters in 3 lines: scroll to read all of it")
    # It is too long to be recognized in a list, so "always" is not offered.
    await expect(question.get_by_role("button")).to_have_text(["Allow once", "Don\u2019t allow"])
    assert await violations(page) == []
    await shoot(page, "question-odd")
    box = question.get_by_role("group", name="What it would do")
    await box.evaluate("box => { box.scrollTop = box.scrollHeight; }")
    await shoot(page, "question-odd-end")
    await question.get_by_role("button", name="Don\u2019t allow").click()
    await settled(page, "Now be odd")
    assert not (stack.workspace / "at-the-end.txt").exists()


@pytest.mark.soak  # The page's part is in test_page_words, the bridge's in test_two_bridges.
async def test_message_waits_during_database_outage(stack: PageStack, tmp_path: Path) -> None:
    with own_server() as server:
        async with running_bridge(tmp_path / "data", BRIDGE_DATABASE_URL=server.create()) as bridge:
            context = await stack.browser.new_context(service_workers="block")
            page = await context.new_page()
            await page.goto(bridge.address)
            await ready(page)
            await ask(page, "Hello before it is away")
            server.stop()
            # First at the bridge that owns the agent, then at a bridge that admits no client.
            await expect(page.locator(".run-words")).to_contain_text("The database is unreachable, so it is not known")
            await say(page, "Written while it is away")
            await expect(page.locator(".run-words")).to_contain_text("The database is unreachable. Nothing is lost.")
            await expect(page.locator(".unsent-item")).to_contain_text("Will be sent when your agent is reachable")
            server.start()
            await ready(page)
            await settled(page, "Written while it is away")
            assert await page.locator(".exchange", has_text="Written while it is away").count() == 1
            await context.close()


@pytest.mark.soak  # test_page_by_itself retries without a kill, test_acp kills without a page.
async def test_message_of_killed_sprite_is_retried(tmp_path: Path, browser: Browser) -> None:
    steps = [{"match": "take long", "hang": True, "times": -1, "on": "prompt"}]
    async with page_stack(browser, tmp_path, steps=steps, start_sprite=Child.start) as stack, stack.page() as page:
        await say(page, "take long, then die")
        await is_working(page)
        os.kill(int((stack.workspace / ".os/run/lock").read_text()), signal.SIGKILL)
        problem = page.locator(".problem", has_text="stopped in the middle of this")
        await expect(problem).to_be_visible()
        await problem.get_by_role("button", name="Try again").click()
        await expect(page.locator(".exchange", has_text="take long, then die")).to_have_count(2)
        await is_working(page)
        await page.get_by_role("button", name="Stop").click()
        await settled(page, "take long, then die")
        assert stack.complaints == []


async def test_reply_content_is_not_executed(page: Page) -> None:
    await ask(page, "be hostile")
    reply = last(page, "be hostile").locator(".reply")
    await expect(reply).to_contain_text("<script>window.harmed = 1</script>")
    await expect(reply).to_contain_text("<svg onload=window.harmed=1>")
    links = await reply.locator("a").evaluate_all("links => links.map((link) => link.getAttribute('href'))")
    assert links == ["https://far.example/pixel.png", "https://far.example/", "/files/artifacts/a%20b.txt"]
    assert await reply.locator("img, script, svg:not(.icon), iframe").count() == 0
    assert await page.evaluate("() => window.harmed") is None


async def test_code_is_coloured_and_formulas_are_set(page: Page) -> None:
    """Text that is neither, or that is refused, stays as it was written."""
    await ask(page, "show maths")
    reply = last(page, "show maths").locator(".prose")
    await expect(reply.locator("code .code-keyword").first).to_have_text("def")
    await expect(reply.locator("code").first).to_have_text("def double(x):\n    return 2 * x")
    await expect(reply.locator("math")).to_have_count(3)
    await expect(reply.locator(".formula.display math")).to_have_count(2)
    await expect(reply).to_contain_text("$5 and $6")
    await expect(reply).to_contain_text(r"\(\undefined{\)")
    await expect(reply.locator("a, img")).to_have_count(0)
    await shoot(page, "chat-maths")
    assert await violations(page) == []
    await page.reload()
    await ready(page)
    await expect(reply.locator("math")).to_have_count(3)


async def test_workspace_picture_is_shown_in_reply(stack: PageStack, page: Page) -> None:
    """A picture from elsewhere stays a link: loading it would tell its server."""
    (stack.workspace / "artifacts/pixel.png").write_bytes(PIXEL)
    await ask(page, "show pictures")
    reply = last(page, "show pictures").locator(".prose")
    picture = reply.get_by_role("img", name="A pixel")
    await picture.scroll_into_view_if_needed()
    await page.wait_for_function(
        "image => image.complete && image.naturalWidth === 1", arg=await picture.element_handle()
    )
    await expect(reply.locator("img")).to_have_count(1)
    await expect(reply.get_by_role("link", name="Image: Elsewhere")).to_be_visible()
    assert await violations(page) == []


async def test_old_messages_appear_by_scrolling_back(stack: PageStack, page: Page) -> None:
    pairs = 160
    with closing(sqlite3.connect(stack.workspace / ".os/workspace.db")) as chat, chat:
        rows = [
            (role, f"{role} line {number}", 1.0, f"old-{number}")
            for number in range(pairs)
            for role in ("user", "assistant")
        ]
        chat.executemany("INSERT INTO chat_messages (role, text, at, mission_id) VALUES (?, ?, ?, ?)", rows)
    await page.reload()
    await ready(page)
    await expect(page.get_by_text(f"assistant line {pairs - 1}", exact=True)).to_be_visible()
    assert await page.locator(".exchange").count() <= 40
    box = page.locator(".thread")
    oldest = page.get_by_text("user line 0", exact=True)
    await box.hover()
    async with asyncio.timeout(PATIENCE):
        while await oldest.count() == 0:
            await page.mouse.wheel(0, -8000)
            await page.wait_for_timeout(100)
    lines = await page.locator(".exchange .bubble-text").all_text_contents()
    seen = [line for line in lines if line.startswith("user line")]
    assert seen == [f"user line {number}" for number in range(pairs)]


async def test_hanging_bridge_is_noticed_and_loses_nothing(stack: PageStack, page: Page) -> None:
    # The last test of this window: its clock stays under the test's control.
    await page.clock.install()
    await page.reload()
    await ready(page)
    # Its connections stay open without a reply: a waiting client would wait for ever.
    assert isinstance(stack.bridge, BridgeServer)
    with stack.bridge.hanging():
        await say(page, "Written while it hangs")
        await page.clock.fast_forward("00:31")
        await expect(page.locator(".link-words")).to_have_text("Reconnecting")
        await expect(page.locator(".unsent-item")).to_contain_text("Will be sent when your agent is reachable")
        # The next connection attempt hangs as well, and is given up.
        for _ in range(4):
            await page.clock.fast_forward("00:21")
        await expect(page.locator(".run-words")).to_contain_text("does not answer")
    await page.clock.fast_forward("00:21")
    await ready(page)
    await settled(page, "Written while it hangs")
    assert await page.locator(".exchange", has_text="Written while it hangs").count() == 1
    said = [turn["user_message"] for turn in observations(stack.workspace)]
    assert said.count("Written while it hangs") == 1


async def test_no_module_creates_markup_or_code_from_text() -> None:
    sinks = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|unsafeHTML| style=\""
    )
    ours = [path for path in (ROOT / "bridge/web").rglob("*.[hj][ts]*") if "vendor" not in path.parts]
    assert len(ours) > 20
    assert [path.name for path in ours if sinks.search(path.read_text())] == []


PASTE = """(field, bytes) => {
    const clipboardData = new DataTransfer();
    clipboardData.items.add(new File([new Uint8Array(bytes)], "a.png", { type: "image/png" }));
    field.dispatchEvent(new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true }));
}"""


@pytest.mark.parametrize("way", ["attached", "pasted"])
async def test_attached_picture_reaches_model(stack: PageStack, page: Page, way: str) -> None:
    if way == "pasted":
        await page.locator("#composer-text").evaluate(PASTE, list(PNG))
    else:
        picture = FilePayload(name="a.png", mimeType="image/png", buffer=PNG)
        await page.locator("input[type=file]").set_input_files(picture)
    await expect(page.locator(".upload[data-state=done]")).to_be_visible()
    await ask(page, f"What is in the {way} picture")
    bodies = [request.raw for request in stack.model.requests if f"the {way} picture" in request.user_text]
    assert b'"type":"image"' in bodies[0]


async def test_thoughts_are_a_folded_line(stack: PageStack, page: Page, tmp_path: Path) -> None:
    go_on = tmp_path / "go-on"
    thought = {"type": "thinking", "thinking": "Perhaps a parrot. " * 40, "signature": "s"}
    stack.model.script.agent({"blocks": [thought, {"type": "text", "text": "A bird."}], "until": str(go_on)})
    await page.fill("#composer-text", "What flies?")
    await page.locator(".send").click()
    thoughts = page.locator(".run-thoughts")
    await expect(thoughts.locator("summary")).to_have_text("Thinking")
    await expect(thoughts.get_by_text("Perhaps a parrot")).to_be_hidden()
    await thoughts.locator("summary").click()
    await expect(thoughts.get_by_text("Perhaps a parrot")).to_be_visible()
    go_on.touch()
    await expect(last(page, "What flies?")).to_contain_text("A bird.")
    await expect(thoughts).to_have_count(0)


async def test_settings_change_model_and_effort(stack: PageStack, page: Page) -> None:
    await page.keyboard.press("Control+k")
    await page.keyboard.type("Settings")
    await page.keyboard.press("Enter")
    await page.get_by_label("Model of this session").fill("claude-opus-4-8")
    await page.get_by_label("Effort").select_option("high")
    await page.get_by_role("button", name="Use it").click()
    await expect(page.get_by_text("The next turn of this session uses it.")).to_be_visible()
    await page.keyboard.press("Escape")
    await ask(page, "Which model are you")
    (body, *_) = [json.loads(each.raw) for each in stack.model.requests if "Which model are you" in each.user_text]
    assert (body["model"], body["output_config"]["effort"]) == ("claude-opus-4-8", "high")
