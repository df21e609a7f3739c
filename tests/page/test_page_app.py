"""The page as an app in a real Chromium: installable, opens without its bridge, and keeps nobody's answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, CDPSession, Locator, Page, expect
from playwright.async_api import Worker as WorkerHandle

from bridge.notify.notice import Notice
from bridge.notify.push import encoded, payload_of
from tests.harness import PATIENCE, rows
from tests.inspection import eventually
from tests.page_harness import (
    PageStack,
    ask,
    needs_chromium,
    page_stack,
    ready,
    say,
    shoot,
    violations,
)
from tests.push_service import PushService

pytestmark = [needs_chromium(), pytest.mark.asyncio(loop_scope="session")]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stack(tmp_path_factory: pytest.TempPathFactory, whole_browser: Browser) -> AsyncIterator[PageStack]:
    async with page_stack(
        whole_browser, tmp_path_factory.mktemp("app"), "--permissions", "ask", BRIDGE_PUSH_INSIDE="1"
    ) as stack:
        yield stack
        assert stack.complaints == []


@asynccontextmanager
async def app(stack: PageStack) -> AsyncIterator[tuple[BrowserContext, Page]]:
    """A window whose service worker is there and has what it keeps."""
    async with stack.context(service_workers="allow") as context:
        await context.grant_permissions(["notifications"], origin=stack.bridge.url)
        page = await stack.open(context)
        await page.evaluate("() => navigator.serviceWorker.ready.then(() => null)")
        yield context, page


async def test_the_page_can_be_installed(stack: PageStack) -> None:
    async with app(stack) as (context, page):
        devtools = await context.new_cdp_session(page)
        manifest = await devtools.send("Page.getAppManifest")
        assert manifest["errors"] == []
        said = json.loads(manifest["data"])
        assert (said["id"], said["start_url"], said["scope"], said["display"]) == ("/", "/", "/", "standalone")
        problems = (await devtools.send("Page.getInstallabilityErrors"))["installabilityErrors"]
        # A private window, which every test has, is never offered it.
        assert [each["errorId"] for each in problems if each["errorId"] != "in-incognito"] == []
        for icon in said["icons"]:
            src = manifest["url"].rsplit("/", 1)[0] + "/" + icon["src"]
            size = await page.evaluate(
                "async (src) => { const image = new Image(); image.src = src; await image.decode();"
                " return `${image.naturalWidth}x${image.naturalHeight}`; }",
                src,
            )
            assert size == icon["sizes"]


async def test_it_opens_without_its_bridge_with_the_draft_as_it_was_and_goes_on_when_that_is_back(
    stack: PageStack,
) -> None:
    async with app(stack) as (_, page):
        await page.fill("#composer-text", "half a thought")
        await stack.stop_bridge()
        await page.reload()
        await expect(page.locator("#composer-text")).to_have_value("half a thought")
        await expect(page.locator(".link-words")).to_have_text("Reconnecting")
        await expect(page.locator(".run-words")).to_contain_text("does not answer")
        # What a part of the page needs later is there as well.
        await page.get_by_role("tab", name="Memory").locator("visible=true").click()
        await expect(page.get_by_role("tab", name="Health")).to_be_visible()
        policy = await page.evaluate("async () => (await caches.match('/')).headers.get('Content-Security-Policy')")
        assert "require-trusted-types-for 'script'" in policy
        await stack.start_bridge()
        await ready(page)
        await expect(page.locator("#composer-text")).to_have_value("half a thought")


async def test_nobodys_answer_is_kept_and_an_older_versions_files_are_given_up(stack: PageStack) -> None:
    async with stack.context(service_workers="allow") as context:
        old = await context.new_page()
        await old.goto(f"{stack.bridge.url}/healthz")
        await old.evaluate("async () => { await (await caches.open('sprite-shell-old')).add('/icon.svg') }")
        await old.close()
        page = await stack.open(context)
        await page.evaluate("() => navigator.serviceWorker.ready.then(() => null)")
        await page.wait_for_function("async () => !(await caches.has('sprite-shell-old'))")
        await page.reload()
        await ready(page)
        assert await page.evaluate("() => navigator.serviceWorker.controller !== null")
        (stack.workspace / "documents").mkdir(exist_ok=True)
        (stack.workspace / "documents/secret.txt").write_text("secret")
        await ask(page, "Hello")
        await page.get_by_role("tab", name="Memory").locator("visible=true").click()
        for path in ("/files/documents/secret.txt", "/push/key", "/notify/settings", "/healthz", "/login?token=x"):
            await page.evaluate("(path) => fetch(path).then((answer) => answer.text())", path)
        kept = await page.evaluate(
            """async () => {
              const found = [];
              for (const name of await caches.keys())
                for (const request of await (await caches.open(name)).keys()) found.push(new URL(request.url).pathname);
              return found;
            }"""
        )
        files = [path for path in kept if path != "/"]
        assert len(files) > 60
        assert len(kept) == len(files) + 1
        assert [
            path for path in files if not path.startswith("/-/") or not path.endswith((".js", ".css", ".svg"))
        ] == []
        assert len({path.split("/")[2] for path in files}) == 1


async def test_who_is_logged_out_is_told_so_and_gets_no_page_of_before(stack: PageStack) -> None:
    async with app(stack) as (context, page):
        await context.clear_cookies()
        await page.reload()
        await expect(page.get_by_role("heading", name="Please log in")).to_be_visible()


# --- notifications ---

TOLD = {"key": "m1", "kind": "ended", "title": "The tests are green", "body": "All 900.", "at": 1.79e9, "url": "/"}

#: Counts, within the worker, the events that it is done with.
COUNTING = """
() => {
  globalThis.handled = 0;
  const { waitUntil } = ExtendableEvent.prototype;
  ExtendableEvent.prototype.waitUntil = function (work) {
    waitUntil.call(this, work.finally(() => { handled += 1; }));
  };
}
"""


class Worker:
    """The service worker as the browser's push service and a person's finger see it."""

    def __init__(self, origin: str, worker: WorkerHandle, devtools: CDPSession, registration_id: str) -> None:
        self._origin = origin
        self._worker = worker
        self._devtools = devtools
        self._registration_id = registration_id
        #: What the browser complained of in it, such as a picture that its policy keeps out.
        self.complaints: list[str] = []
        devtools.on(
            "ServiceWorker.workerErrorReported",
            lambda event: self.complaints.append(event["errorMessage"]["errorMessage"]),
        )

    @classmethod
    async def of(cls, stack: PageStack, page: Page) -> Worker:
        """The one of a window, watched from a page of nobody's beside it."""
        blank = await page.context.new_page()
        devtools = await page.context.new_cdp_session(blank)
        found: list[str] = []
        devtools.on(
            "ServiceWorker.workerRegistrationUpdated",
            lambda event: found.extend(each["registrationId"] for each in event["registrations"]),
        )
        await devtools.send("ServiceWorker.enable")
        async with asyncio.timeout(PATIENCE):
            while not found:  # noqa: ASYNC110 - another process cannot set an event of ours
                await asyncio.sleep(0.02)
        await page.bring_to_front()
        worker = page.context.service_workers[0]
        await worker.evaluate(COUNTING)
        return cls(stack.bridge.url, worker, devtools, found[0])

    async def push(self, told: dict[str, Any] | str) -> None:
        """Delivers a message, as the browser does with one that it has decrypted; returns when that is done with.

        Until then nobody may ask what is shown: Chromium compares its list with the screen for each such question, and
        takes what is just being shown for something that was closed.
        """
        handled = await self._worker.evaluate("() => handled")
        data = told if isinstance(told, str) else json.dumps(told)
        message = {"origin": self._origin, "registrationId": self._registration_id, "data": data}
        await self._devtools.send("ServiceWorker.deliverPushMessage", message)
        async with asyncio.timeout(PATIENCE):
            while await self._worker.evaluate("() => handled") == handled:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.02)

    async def shown(self) -> list[dict[str, Any]]:
        """The notifications that are to be seen."""
        found: list[dict[str, Any]] = await self._worker.evaluate(
            """async () => (await registration.getNotifications()).map(
              ({ title, body, tag, requireInteraction, actions }) =>
                ({ title, body, tag, requireInteraction, actions: actions.map((each) => each.action) }))"""
        )
        return found

    async def click(self, tag: str, action: str = "") -> None:
        """Clicks one, or one of its buttons: the handler is called as the browser's event does."""
        await self._worker.evaluate(
            """async ([tag, action]) => {
              const [notification] = await registration.getNotifications({ tag });
              await clicked(notification, action).catch((error) => {
                // Only a real finger may bring a window to the front.
                if (error.name !== 'InvalidAccessError') throw error;
              });
            }""",
            [tag, action],
        )

    async def until_shown(self, count: int) -> list[dict[str, Any]]:
        """Waits until so many are to be seen."""
        async with asyncio.timeout(PATIENCE):
            while len(found := await self.shown()) != count:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.02)
        return found


async def test_a_message_is_shown_once_while_no_page_is_looked_at_and_cleared_when_one_is(stack: PageStack) -> None:
    async with app(stack) as (_, page):
        worker = await Worker.of(stack, page)
        await page.goto("about:blank")
        await worker.push(TOLD)
        await worker.until_shown(1)
        await worker.push({**TOLD, "title": "Again"})
        # What nobody can read still says that there is something.
        await worker.push("{")
        shown = {each["tag"]: each for each in await worker.until_shown(2)}
        assert set(shown) == {"m1", "sprite"}
        assert shown["m1"]["title"] == "Again"
        assert shown["sprite"]["title"] == "Sprite has something for you"
        assert (shown["m1"]["actions"], shown["m1"]["requireInteraction"]) == ([], False)
        assert worker.complaints == []

        await page.goto(stack.bridge.url)
        await ready(page)
        await worker.until_shown(0)
        await worker.push(TOLD)
        await worker.push({**TOLD, "key": "test", "kind": "test", "title": "Notifications work"})
        assert [each["title"] for each in await worker.until_shown(1)] == ["Notifications work"]


def question(request_id: str, *, is_whole: bool = True) -> dict[str, Any]:
    """What the bridge would send of a question, to somebody who wants words."""
    words = ("May Sprite run a command?", "touch allowed")
    notice = Notice(request_id, "permission", "local", "local", *words, 1.79e9, request_id, is_whole)
    told: dict[str, Any] = json.loads(encoded(payload_of(notice, words=True)))
    return told


async def test_a_question_is_answered_from_its_notification_and_a_late_answer_is_told_so(stack: PageStack) -> None:
    async with (
        app(stack) as (_, page),
        stack.bridge.page(stack.cookie) as terminal,
    ):
        worker = await Worker.of(stack, page)
        await page.goto("about:blank")
        await terminal.type("state_sync")
        mission = await terminal.send("mission", {"text": "run `touch allowed-here`"})
        request_id = (await terminal.type("permission_request"))["request_id"]
        await worker.push(question(request_id))
        (shown,) = await worker.until_shown(1)
        assert (shown["actions"], shown["requireInteraction"]) == (["allow", "deny"], True)
        await worker.click(request_id, "allow")
        assert (await terminal.end_of(mission))["event"] == "complete"
        assert (stack.workspace / "allowed-here").exists()
        assert await worker.shown() == []

        # The same again, on another of the person's devices, which has tags of its own.
        await worker.push({**question(request_id), "key": "other"})
        await worker.until_shown(1)
        await worker.click("other", "deny")
        (late,) = await worker.until_shown(1)
        assert late["title"] == "Your answer did not count"
        assert "not open any more" in late["body"]


async def test_what_a_notification_does_not_show_whole_can_be_denied_there_and_not_allowed(stack: PageStack) -> None:
    async with app(stack) as (_, page):
        worker = await Worker.of(stack, page)
        await page.goto("about:blank")
        await worker.push(question("r1", is_whole=False))
        assert [each["actions"] for each in await worker.until_shown(1)] == [["deny"]]


async def test_a_click_leads_to_what_it_is_about(stack: PageStack) -> None:
    async with app(stack) as (_, page):
        worker = await Worker.of(stack, page)
        await ask(page, "Hello")
        mission = await page.locator(".thread-list .exchange").last.get_attribute("data-mission")
        await worker.push({**TOLD, "kind": "test", "url": f"/#mission={mission}"})
        await worker.until_shown(1)
        await worker.click("m1")
        await expect(page.locator(f".exchange[data-mission='{mission}']")).to_be_focused()
        await worker.push({**TOLD, "kind": "test", "url": "https://evil.example/#question=r1"})
        await worker.until_shown(1)
        await worker.click("m1")

        await page.goto("about:blank")
        await page.goto(f"{stack.bridge.url}/#question=r1")
        await expect(page.locator(".toast")).to_contain_text("not open any more")
        await expect(page).to_have_url(f"{stack.bridge.url}/")


# --- turning them on ---

#: What a browser's push service gives it; Chromium's own is not to be reached from here.
BROWSERS_SERVICE = """
(made) => {
  if (!globalThis.PushManager) return;
  const KEY = 'given';
  const bytes = (text) => Uint8Array.from(atob(text.replaceAll('-', '+').replaceAll('_', '/')), (c) => c.charCodeAt(0));
  const given = (key) => ({
    endpoint: made.endpoint,
    options: { applicationServerKey: bytes(key).buffer },
    toJSON: () => ({ ...made, expirationTime: null }),
    unsubscribe: async () => { sessionStorage.removeItem(KEY); return true; },
  });
  PushManager.prototype.getSubscription = async () => {
    const key = sessionStorage.getItem(KEY);
    return key ? given(key) : null;
  };
  PushManager.prototype.subscribe = async ({ applicationServerKey: key }) => {
    sessionStorage.setItem(KEY, key);
    return given(key);
  };
}
"""


@asynccontextmanager
async def subscribing(stack: PageStack) -> AsyncIterator[tuple[BrowserContext, PushService]]:
    """A window whose browser has a push service that can be reached."""
    async with PushService() as service, stack.context(service_workers="allow") as context:
        await context.grant_permissions(["notifications"], origin=stack.bridge.url)
        made = json.dumps(msgspec.to_builtins(service.browser("this").subscription))
        await context.add_init_script(f"({BROWSERS_SERVICE})({made})")
        yield context, service


def known_browsers(stack: PageStack) -> list[dict[str, Any]]:
    return rows(stack.data / "bridge.db", "SELECT endpoint FROM push_subscriptions")


async def open_by_palette(page: Page) -> Locator:
    await page.keyboard.press("Control+k")
    await page.keyboard.type("Notifications")
    await page.keyboard.press("Enter")
    dialog = page.get_by_role("dialog", name="Notifications")
    await expect(dialog).to_be_visible()
    return dialog


async def test_notifications_are_turned_on_tried_worded_and_turned_off_by_keys_alone(stack: PageStack) -> None:
    async with subscribing(stack) as (context, service):
        page = await stack.open(context)
        service.public_key = await page.evaluate("async () => (await (await fetch('/push/key')).json()).key")
        dialog = await open_by_palette(page)
        await expect(dialog).to_contain_text("They are off.")
        await expect(dialog.get_by_role("radio", name="Only that Sprite has something")).to_be_checked()
        assert await violations(page) == []
        await dialog.get_by_role("button", name="Turn on").press("Enter")
        await expect(dialog).to_contain_text("They are on.")
        await dialog.get_by_role("radio", name="What it is about").press("Space")
        send = dialog.get_by_role("button", name="Send a test")
        # A key on a button that is disabled, while the choice is stored, is nobody's.
        await expect(send).to_be_enabled()
        await send.press("Enter")
        (got,) = await service.pushed()
        assert got.message["title"] == "Notifications work"
        worker = await Worker.of(stack, page)
        await worker.push(got.message)
        await worker.until_shown(1)
        await expect(dialog).to_contain_text("A test was sent.")
        assert await violations(page) == []
        await shoot(page, "notifications")

        await page.reload()
        await ready(page)
        dialog = await open_by_palette(page)
        await expect(dialog).to_contain_text("They are on.")
        await expect(dialog.get_by_role("radio", name="What it is about")).to_be_checked()
        await dialog.get_by_role("button", name="Turn off").press("Enter")
        await expect(dialog).to_contain_text("They are off.")
        assert known_browsers(stack) == []


async def test_a_question_that_comes_while_no_page_is_open_is_allowed_from_the_phone(stack: PageStack) -> None:
    async with subscribing(stack) as (context, service):
        page = await stack.open(context)
        # What was turned on once is kept up by each visit, also where the bridge has forgotten it.
        await page.evaluate("() => localStorage.setItem('sprite.notifications', 'on')")
        chosen = await page.evaluate(
            """async () => (await fetch('/notify/settings', {method: 'PUT', body: '{"words": true}'})).status"""
        )
        assert chosen == 200
        service.public_key = await page.evaluate("async () => (await (await fetch('/push/key')).json()).key")
        await page.reload()
        await ready(page)
        await eventually(lambda: known_browsers(stack) != [], "the bridge does not know the browser")
        worker = await Worker.of(stack, page)
        await say(page, "run `touch allowed-there`")
        await expect(page.locator(".question").last).to_contain_text("touch allowed-there")
        await page.goto("about:blank")

        (got,) = await service.pushed()
        told = (got.message["kind"], got.message["body"], got.message["allow"])
        assert told == ("permission", "touch allowed-there", True)
        await worker.push(got.message)
        (shown,) = await worker.until_shown(1)
        await worker.click(shown["tag"], "allow")
        await eventually((stack.workspace / "allowed-there").exists, "what was allowed did not run")


async def test_a_browser_that_blocks_or_lacks_notifications_is_told_what_helps(stack: PageStack) -> None:
    async with stack.page() as page:
        await page.evaluate("() => Object.defineProperty(Notification, 'permission', {get: () => 'denied'})")
        await page.get_by_role("tab", name="Memory").locator("visible=true").click()
        await page.get_by_role("tab", name="Health").click()
        await page.get_by_role("button", name="Notifications\u2026").click()
        dialog = page.get_by_role("dialog", name="Notifications")
        await expect(dialog).to_contain_text("This browser blocks them.")
        assert await violations(page) == []
        await dialog.get_by_role("button", name="Close").click()
        await page.evaluate("() => { delete globalThis.PushManager }")
        dialog = await open_by_palette(page)
        await expect(dialog).to_contain_text("This browser cannot show them.")
        await expect(dialog.get_by_role("button", name="Turn on")).to_have_count(0)


async def test_the_bar_fits_every_width(stack: PageStack) -> None:
    async with stack.page() as page:
        for width in (701, 720, 760, 900, 989, 1040, 1280):
            await page.set_viewport_size({"width": width, "height": 700})
            cut_off = await page.evaluate(
                "() => [...document.querySelectorAll('button, [role=tab]')].filter((each) => each.checkVisibility()"
                " && each.getBoundingClientRect().right > innerWidth).map((each) => each.textContent)"
            )
            assert cut_off == [], width
            await expect(page.get_by_role("button", name="New session")).to_be_in_viewport()
        await shoot(page, "bar")
