"""Shared by the page's tests: Debian's Chromium, a real bridge, a scripted model, and pages without errors."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Page,
    Playwright,
    ViewportSize,
    WebSocketRoute,
    expect,
)
from playwright.async_api import Error as PlaywrightError

from tests.bridge_harness import Bridge, running_bridge
from tests.ports import free_port
from tests.scripted_model import OfflineModel

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
#: Chromium without windows: half the work, but neither notifications nor PDF files.
_HEADLESS = shutil.which("chromium-headless-shell") or CHROMIUM
#: Timeout of a broken page, shorter than that of a slow machine.
PATIENCE_MS = 120_000
expect.set_options(timeout=PATIENCE_MS)
#: Without these, Chromium connects to unreachable hosts.
_FLAGS = [
    *"--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking".split(),
    *"--disable-component-update --disable-sync".split(),
    # A request that leaves this machine fails, and the console reports it: see `PageStack.watch`.
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost",
]


def needs_chromium() -> pytest.MarkDecorator:
    """Skip if Debian's Chromium is missing, but fail if it is required (REQUIRE_BROWSER=1)."""
    if CHROMIUM is None and os.environ.get("REQUIRE_BROWSER") == "1":
        raise RuntimeError("REQUIRE_BROWSER=1, and there is no chromium: apt-get install chromium")
    return pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine: apt-get install chromium")


@asynccontextmanager
async def chromium(driver: Playwright, program: str | None = _HEADLESS) -> AsyncIterator[Browser]:
    """Run a headless browser with an empty profile."""
    assert program is not None
    browser = await driver.chromium.launch(executable_path=program, args=_FLAGS)
    try:
        yield browser
    finally:
        await browser.close()


@dataclass
class PageStack:
    """A bridge, its model, and a logged-in browser. `complaints` are the errors reported by pages."""

    browser: Browser
    model: OfflineModel
    data: Path
    bridge: Bridge
    flags: Sequence[str] = ()
    environment: dict[str, Any] = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)
    _cookie: tuple[str, str] = ("", "")
    _running: AsyncExitStack = field(default_factory=AsyncExitStack)
    #: Windows that `page` reuses, by their options, and their cleanup.
    _idle: dict[str, list[Page]] = field(default_factory=dict)
    _windows: AsyncExitStack = field(default_factory=AsyncExitStack)

    @property
    def workspace(self) -> Path:
        """Return the local person's workspace."""
        return self.bridge.workspace

    @property
    def cookie(self) -> str:
        """Return the session as a header, for clients other than browsers."""
        return "=".join(self._cookie)

    async def log_in(self) -> None:
        """Start a fresh session for the contexts opened from here on."""
        name, _, value = (await self.bridge.login()).partition("=")
        self._cookie = (name, value)

    async def stop_bridge(self) -> None:
        """Stop the bridge in order, its sprites with it."""
        await self._running.aclose()

    async def start_bridge(self) -> None:
        """Start the bridge again, with the same folder and port."""
        port = int(self.bridge.url.rsplit(":", 1)[1])
        self.bridge = await self._running.enter_async_context(
            running_bridge(self.data, *self.flags, host="127.0.0.1", port=port, **self.environment)
        )

    @asynccontextmanager
    async def context(self, **options: Any) -> AsyncIterator[BrowserContext]:
        """Open a separate browser window, logged in; `options` are Playwright's (viewport, color_scheme, ...)."""
        options.setdefault("viewport", {"width": 1280, "height": 800})
        # An element in mid-fade briefly has half its contrast.
        options.setdefault("reduced_motion", "reduce")
        # A service worker between page and bridge would bypass a test's routes.
        options.setdefault("service_workers", "block")
        context = await self.browser.new_context(**options)
        context.set_default_timeout(PATIENCE_MS)
        await self.let_in(context)
        try:
            yield context
        finally:
            await context.close()

    @asynccontextmanager
    async def page(self, **options: Any) -> AsyncIterator[Page]:
        """Open the page in a window without state of another test.

        The window is cleared and reused by the next test with the same options, which costs a third of a new one. Use a
        `context` to route requests, listen to them, set a clock or change the media.
        """
        idle = self._idle.setdefault(repr(sorted(options.items())), [])
        if idle:
            page = idle.pop()
            await self.let_in(page.context)
            await self.show(page)
        else:
            page = await self.open(await self._windows.enter_async_context(self.context(**options)))
        size = page.viewport_size
        try:
            yield page
        except BaseException:
            await page.context.close()
            raise
        if await self._emptied(page, size):
            idle.append(page)

    async def open(self, context: BrowserContext) -> Page:
        """Open another page in a window, and wait until it is ready."""
        page = await context.new_page()
        self.watch(page)
        await self.show(page)
        return page

    async def close_windows(self) -> None:
        """Close the windows that `page` keeps."""
        self._idle.clear()
        await self._windows.aclose()

    async def show(self, page: Page) -> None:
        """Load the page and wait until it is ready."""
        await page.goto(self.bridge.url)
        await ready(page)

    async def let_in(self, context: BrowserContext) -> None:
        """Log a window in."""
        name, value = self._cookie
        await context.add_cookies([{"name": name, "value": value, "url": self.bridge.url}])

    async def _emptied(self, page: Page, size: ViewportSize | None) -> bool:
        """Open another page of the same origin, which keeps the renderer; return False without a bridge."""
        try:
            await page.goto(f"{self.bridge.url}/healthz")
        except PlaywrightError:
            await page.context.close()
            return False
        await page.evaluate("() => { localStorage.clear(); sessionStorage.clear(); }")
        await page.mouse.move(-1, -1)
        if size and page.viewport_size != size:
            await page.set_viewport_size(size)
        return True

    def watch(self, page: Page) -> None:
        """Record errors, violations of the policy, and requests that leave this machine."""

        def hear(message: ConsoleMessage) -> None:
            if message.type != "error":
                return
            # A stopped bridge or an ended login is no error of the page.
            harmless = any(words in message.text for words in ("ERR_", "WebSocket", "status of 401"))
            url = message.location["url"]
            # Full Chromium requests the icon of a document without one, such as `/healthz`.
            if url == f"{self.bridge.url}/favicon.ico":
                return
            is_foreign = url != "" and not url.startswith((self.bridge.url, "data:", "blob:"))
            if is_foreign or not harmless:
                self.complaints.append(f"{message.text} ({url})")

        # Not "request": each of the page's 60 files would cost an event in the driver and here.
        page.on("console", hear)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))


class Wire:
    """A page whose frames a test may change, hold back or answer; other frames pass."""

    page: Page
    _answer: Callable[[str], None]

    def __init__(self) -> None:
        self.pass_all()

    def pass_all(self) -> None:
        #: Maps a frame that the page sends or receives to the forwarded frame; None drops it.
        self.sent: Callable[[str], str | None] = lambda frame: frame
        self.received: Callable[[str], str | None] = lambda frame: frame

    def refuse(self, type_: str, code: str, message: str) -> None:
        """Answer the page's messages of a type with an error."""

        def sent(frame: str) -> str | None:
            asked = json.loads(frame)
            if asked["type"] != type_:
                return frame
            refusal = {"code": code, "message": message}
            self.answer(json.dumps({"type": "error", "id": "e", "reply_to": asked["id"], "payload": refusal}))
            return None

        self.sent = sent

    def answer(self, frame: str) -> None:
        """Send the page a frame."""
        self._answer(frame)

    def route(self, route: WebSocketRoute) -> None:
        """Intercept the connection between the page and its bridge (see BrowserContext.route_web_socket)."""
        server = route.connect_to_server()
        self._answer = route.send

        def up(frame: str | bytes) -> None:
            if (passed := self.sent(str(frame))) is not None:
                server.send(passed)

        def down(frame: str | bytes) -> None:
            if (passed := self.received(str(frame))) is not None:
                route.send(passed)

        route.on_message(up)
        server.on_message(down)


@asynccontextmanager
async def page_stack(
    browser: Browser, folder: Path, *flags: str, steps: Sequence[dict[str, Any]] = (), **environment: Any
) -> AsyncIterator[PageStack]:
    """Run the real stack in the worker's browser.

    `steps` are the model's (tests/scripted_model.py), `flags` and `environment` the bridge's.
    """
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(OfflineModel())
        model.script.agent(*steps)
        environment = {
            "ANTHROPIC_BASE_URL": model.url,
            "ANTHROPIC_API_KEY": "planted-key",
            **environment,
        }
        running = await stack.enter_async_context(AsyncExitStack())
        data = folder / "data"
        bridge = await running.enter_async_context(running_bridge(data, *flags, port=free_port(), **environment))
        found = PageStack(browser, model, data, bridge, flags, environment, _running=running)
        await found.log_in()
        stack.push_async_callback(found.close_windows)
        yield found


async def ready(page: Page) -> None:
    """Wait until the conversation is loaded and the link is ready."""
    # Polling at each frame would make the browser render each of them.
    await page.wait_for_function(
        "() => document.querySelector('.link-words')?.textContent === 'Connected' "
        "&& !document.querySelector('.run-state[data-kind=link]')",
        polling=50,
    )


async def open_anew(page: Page) -> None:
    """Reload a page as a person finds it on a first visit."""
    await page.set_viewport_size({"width": 1280, "height": 800})
    await page.emulate_media(color_scheme="light", reduced_motion="reduce")
    await page.evaluate("() => { localStorage.clear(); sessionStorage.clear(); }")
    await page.reload()
    await ready(page)


async def say(page: Page, text: str) -> None:
    """Type a message and send it."""
    await page.fill("#composer-text", text)
    await page.press("#composer-text", "Enter")


async def ask(page: Page, text: str) -> None:
    """Send a message and wait for the end of its reply."""
    await say(page, text)
    await settled(page, text)


async def settled(page: Page, text: str) -> None:
    """Wait until the message with this text has been answered, successfully or not."""
    last = page.locator(".thread-list .exchange", has_text=text).last
    await last.and_(page.locator("[data-status=complete], [data-status=error], [data-status=interrupted]")).wait_for(
        state="attached"
    )


async def violations(page: Page) -> list[str]:
    """Return axe-core's violations, one line each: rule, and the first elements."""
    if not await page.evaluate("() => 'axe' in window"):
        await page.evaluate(await asyncio.to_thread(_axe_source))
    found: list[str] = await page.evaluate(
        """async () => (await axe.run(document, {resultTypes: ['violations']})).violations.map(({id, nodes}) =>
             `${id}: ${nodes.slice(0, 3).map((node) => node.html.slice(0, 160)).join(', ')}`)"""
    )
    return found


def _axe_source() -> str:
    # The package only ships axe-core; its own code is untyped and not needed.
    package = find_spec("axe_playwright_python")
    assert package is not None
    assert package.origin is not None
    return (Path(package.origin).parent / "axe.min.js").read_text()


async def shoot(page: Page, name: str) -> None:
    """Take a screenshot if SCREENSHOTS names a folder."""
    if folder := os.environ.get("SCREENSHOTS"):
        await page.screenshot(path=Path(folder) / f"{name}.png", animations="disabled")
