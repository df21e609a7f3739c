"""The page under load: first-load bytes, time to usable, and long tasks with 1,000 messages and 200 cards.

A long task takes over 50 ms of the page's main thread. They are counted from the browser's own trace by processor time:
the machine is shared with the bridge, the sprite and whatever else runs. By the wall clock they are named beside.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, Page, Request, async_playwright

from benchmarks.report import below, line
from tests.page_harness import CHROMIUM, PageStack, chromium, page_stack, ready, say

RUNS = 5
LOADS = 9
MESSAGES = 1000
CARDS = 200
#: Words of a reply of about 34 kB, in pieces as a fast model streams them.
CHAPTERS = 120
STEPS = [{"match": "stream", "chunk_delay": 0.01, "times": -1, "on": "prompt", "text": ""}]
FIRST_LOAD_BYTES = 80 * 1024
USABLE_MS = 1000.0
THROTTLED_TASKS = 30

_USABLE = """() => document.querySelector('.link-words')?.textContent === 'Connected'
    && document.querySelector('.exchange') && document.querySelector('.canvas-card')
    && !document.querySelector('#composer-text').disabled && performance.now()"""
#: Asked seldom and cheaply: Playwright's own locators search the whole conversation, on the thread that is measured.
_BUSY = "() => document.querySelector('.run-state').dataset.kind === 'busy'"
POLL_MS = 200
_DRAWN = f"""() => document.querySelectorAll('.canvas-card').length === {CARDS}"""
LONG_MS = 50.0


def story() -> str:
    """A reply with everything that markdown has."""
    chapter = (
        "## Chapter {0}\n\nIt *remembered* what it had been **told**, and `wrote` it down, each evening, in words that "
        "somebody who had not been there would understand.\n\n- first\n- second\n\n"
    )
    extra = (
        "```python\ndef remember(turn):\n    log.append(turn)\n```\n\n| item | value |\n|---|--:|\n| apples | 3 |\n\n"
    )
    return "".join(chapter.format(number) + (extra if number % 4 == 0 else "") for number in range(CHAPTERS))


def seed(workspace: Path) -> None:
    """A conversation and a canvas of some size, as a sprite would have written them."""
    reply = "Here is **what I found**:\n\n1. one\n2. two\n\n```\ncode\n```\n\nAnd a closing line that is a bit longer."
    table = {"columns": ["item", "value"], "rows": [[f"row {row}", row * 1.5] for row in range(20)]}
    now = time.time()
    with closing(sqlite3.connect(workspace / ".os/workspace.db")) as database, database:
        for number in range(MESSAGES // 2):
            for role, text in (("user", f"Question number {number}"), ("assistant", reply)):
                database.execute(
                    "INSERT INTO chat_messages (role, text, at, mission_id) VALUES (?, ?, ?, ?)",
                    (role, text, now - 5000 + number, f"seeded-{number}"),
                )
        database.execute(
            "INSERT INTO stacks (stack_id, name, archived, created_at) VALUES ('s', 'Seeded', 0, ?)", (now,)
        )
        for number in range(CARDS):
            blocks = [
                {"id": "a", "type": "heading", "data": {"text": f"Card {number}", "level": 2}},
                {"id": "b", "type": "table", "data": table},
                {"id": "c", "type": "text", "data": {"content": reply}},
            ]
            database.execute(
                "INSERT INTO cards (card_id, stack_id, title, card_type, blocks_json, created_at, updated_at) "
                "VALUES (?, 's', ?, 'table', ?, ?, ?)",
                (f"card-{number}", f"Card {number}", json.dumps(blocks), now, now),
            )


async def first_visit(stack: PageStack) -> int:
    """Bytes of all bodies of a first visit, as they travelled."""
    async with stack.context() as window:
        page = await window.new_page()
        weighed: list[asyncio.Task[dict[str, Any]]] = []

        def weigh(request: Request) -> None:
            weighed.append(asyncio.ensure_future(request.sizes()))  # type: ignore[arg-type]

        page.on("requestfinished", weigh)
        await page.goto(stack.bridge.url)
        await ready(page)
        await page.wait_for_load_state("networkidle")
        return sum(sizes["responseBodySize"] for sizes in await asyncio.gather(*weighed))


async def usable_ms(stack: PageStack) -> float:
    """From the navigation to a page on which conversation and cards are drawn and one can type; nothing cached."""
    async with stack.context() as window:
        page = await window.new_page()
        await page.goto(stack.bridge.url, wait_until="commit")
        handle = await page.wait_for_function(_USABLE, polling="raf")
        return float(await handle.json_value())


@dataclass(frozen=True, slots=True)
class Tasks:
    """Tasks of the page's main thread: processor and wall time of each in ms."""

    processor: list[float]
    wall: list[float]

    @property
    def long(self) -> int:
        """Number of tasks over 50 ms of processor time."""
        return sum(each > LONG_MS for each in self.processor)

    @property
    def long_by_the_clock(self) -> int:
        """Number of tasks over 50 ms of wall time."""
        return sum(each > LONG_MS for each in self.wall)


async def traced(browser: Browser, page: Page, act: Callable[[Page], Awaitable[None]]) -> Tasks:
    """The tasks while something is done."""
    await browser.start_tracing(page=page, categories=["toplevel", "__metadata"])
    try:
        await act(page)
    finally:
        trace = json.loads(await browser.stop_tracing())["traceEvents"]
    mains = {
        (event["pid"], event["tid"])
        for event in trace
        if event["name"] == "thread_name" and event["args"]["name"] == "CrRendererMain"
    }
    tasks = [
        event
        for event in trace
        if event["name"] == "ThreadControllerImpl::RunTask" and (event["pid"], event["tid"]) in mains
    ]
    assert tasks, "the trace names no task"
    return Tasks([event.get("tdur", 0) / 1000 for event in tasks], [event.get("dur", 0) / 1000 for event in tasks])


async def stream_and_type(page: Page) -> None:
    """A long reply arrives while the person writes the next message."""
    await say(page, "stream to me")
    await page.wait_for_function(_BUSY, polling=POLL_MS)
    for letter in "a message that is written while the reply comes in ":
        await page.keyboard.type(letter)
        await page.wait_for_timeout(20)
    await page.wait_for_function(f"() => !({_BUSY})()", polling=POLL_MS)


async def scroll(page: Page) -> None:
    """Back through the conversation, paging older messages in, and to its end again."""
    await page.locator(".thread").hover()
    for _ in range(60):
        await page.mouse.wheel(0, -900)
        await page.wait_for_timeout(16)
    for _ in range(60):
        await page.mouse.wheel(0, 900)
        await page.wait_for_timeout(16)


async def drag(page: Page) -> None:
    """A card across the board and back."""
    await page.fill("#composer-text", "")
    head = page.locator(".canvas-card .card-head").first
    box = await head.bounding_box()
    assert box is not None
    x, y = box["x"] + 60, box["y"] + box["height"] / 2
    await page.mouse.move(x, y)
    await page.mouse.down()
    for step in (*range(60), *reversed(range(60))):
        await page.mouse.move(x + step * 4, y + step * 3)
        await page.wait_for_timeout(8)
    await page.mouse.up()


async def measure(stack: PageStack, rate: int) -> dict[str, list[Tasks]]:
    """The tasks of each run by what was done, with the processor `rate` times slower."""
    found: dict[str, list[Tasks]] = {}
    for _ in range(RUNS):
        async with stack.page(viewport={"width": 1440, "height": 900}) as page:
            await page.wait_for_function(_DRAWN, polling=POLL_MS)
            session = await page.context.new_cdp_session(page)
            await session.send("Emulation.setCPUThrottlingRate", {"rate": rate})
            for name, act in (("streaming and typing", stream_and_type), ("scrolling", scroll), ("dragging", drag)):
                found.setdefault(name, []).append(await traced(stack.browser, page, act))
    return found


def say_tasks(name: str, runs: list[Tasks], most: int) -> None:
    """One line: the median run's number of long tasks, and the worst task of all."""
    counts = [run.long for run in runs]
    worst = max(max(run.processor) for run in runs)
    wall = statistics.median(run.long_by_the_clock for run in runs)
    median = statistics.median(counts)
    line(name, f"{median:g} {counts}, longest {worst:.0f} ms; {wall:g} by the clock", f"<= {most}", ok=median <= most)


async def main() -> None:
    """Prints every figure."""
    with tempfile.TemporaryDirectory() as folder:
        STEPS[0]["text"] = story()
        async with (
            async_playwright() as driver,
            chromium(driver, CHROMIUM) as browser,
            page_stack(browser, Path(folder), steps=STEPS) as stack,
        ):
            total = await first_visit(stack)
            line(
                "first visit, all bodies as sent",
                f"{total:,} bytes",
                f"<= {FIRST_LOAD_BYTES:,}",
                ok=total <= FIRST_LOAD_BYTES,
            )
            await stack.stop_bridge()
            seed(stack.workspace)
            await stack.start_bridge()
            await usable_ms(stack)
            below(
                "usable, 1,000 messages and 200 cards, nothing cached",
                [await usable_ms(stack) for _ in range(LOADS)],
                USABLE_MS,
            )
            for rate, most in ((1, 0), (4, THROTTLED_TASKS)):
                for name, runs in (await measure(stack, rate)).items():
                    say_tasks(f"long tasks, {name}{', processor 4 x slower' if rate > 1 else ''}", runs, most)


if __name__ == "__main__":
    asyncio.run(main())
