"""Tests that need a full Chromium: the page as an app, its notifications, and the viewer of PDF files.

The tests share one window, since its service worker fetches all files of the page. Each test reloads the page.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
import pytest_asyncio
from playwright.async_api import Browser, CDPSession, Page, expect
from playwright.async_api import Worker as WorkerHandle

from bridge.notify.notice import Notice
from bridge.notify.push import encoded, payload_of
from tests.harness import PATIENCE, rows
from tests.inspection import eventually
from tests.page_harness import PageStack, ask, needs_chromium, page_stack, ready, say, shoot, violations
from tests.push_service import PushService

pytestmark = [needs_chromium(), pytest.mark.asyncio(loop_scope="session")]

#: A push subscription; Chromium's own push service is unreachable from here.
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

#: Counts, inside the worker, the events that it has finished.
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
    """The service worker as seen by the browser's push service and by a person's click."""

    def __init__(self, origin: str, worker: WorkerHandle, devtools: CDPSession, registration_id: str) -> None:
        self._origin = origin
        self._worker = worker
        self._devtools = devtools
        self._registration_id = registration_id
        #: Browser errors of the worker, such as a picture blocked by its policy.
        self.complaints: list[str] = []
        devtools.on(
            "ServiceWorker.workerErrorReported",
            lambda event: self.complaints.append(event["errorMessage"]["errorMessage"]),
        )

    @classmethod
    async def of(cls, stack: PageStack, page: Page) -> Worker:
        """Return the worker of a window, observed from a blank page beside it."""
        blank = await page.context.new_page()
        devtools = await page.context.new_cdp_session(blank)
        found: list[str] = []
        devtools.on(
            "ServiceWorker.workerRegistrationUpdated",
            lambda event: found.extend(each["registrationId"] for each in event["registrations"]),
        )
        await devtools.send("ServiceWorker.enable")
        async with asyncio.timeout(PATIENCE):
            while not found:  # noqa: ASYNC110 - another process cannot set our event
                await asyncio.sleep(0.02)
        await page.bring_to_front()
        worker = page.context.service_workers[0]
        await worker.evaluate(COUNTING)
        return cls(stack.bridge.url, worker, devtools, found[0])

    async def push(self, told: dict[str, Any] | str) -> None:
        """Deliver a message as the browser does after decryption; return when it is handled.

        Until then nobody may ask for the shown notifications: Chromium compares its list with the screen for each such
        query, and takes a notification that is just being shown for a closed one.
        """
        handled = await self._worker.evaluate("() => handled")
        data = told if isinstance(told, str) else json.dumps(told)
        message = {"origin": self._origin, "registrationId": self._registration_id, "data": data}
        await self._devtools.send("ServiceWorker.deliverPushMessage", message)
        async with asyncio.timeout(PATIENCE):
            while await self._worker.evaluate("() => handled") == handled:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.02)

    async def shown(self) -> list[dict[str, Any]]:
        """Return the visible notifications."""
        found: list[dict[str, Any]] = await self._worker.evaluate(
            """async () => (await registration.getNotifications()).map(
              ({ title, body, tag, requireInteraction, actions }) =>
                ({ title, body, tag, requireInteraction, actions: actions.map((each) => each.action) }))"""
        )
        return found

    async def click(self, tag: str, action: str = "") -> None:
        """Click a notification or one of its buttons: the handler is called as by the browser's event."""
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
        """Wait until that many notifications are visible."""
        async with asyncio.timeout(PATIENCE):
            while len(found := await self.shown()) != count:  # noqa: ASYNC110 - as above
                await asyncio.sleep(0.02)
        return found

    async def close_all(self) -> None:
        """Close the visible notifications."""
        await self._worker.evaluate(
            "async () => { for (const each of await registration.getNotifications()) each.close(); }"
        )
        await self.until_shown(0)


@dataclass
class Window:
    """A window with a service worker and a reachable push service."""

    page: Page
    worker: Worker
    service: PushService


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def stack(tmp_path_factory: pytest.TempPathFactory, whole_browser: Browser) -> AsyncIterator[PageStack]:
    async with page_stack(
        whole_browser, tmp_path_factory.mktemp("app"), "--permissions", "ask", TESTS_PUSH_INSIDE="1"
    ) as stack:
        yield stack
        assert stack.complaints == []


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def window(stack: PageStack) -> AsyncIterator[Window]:
    async with PushService() as service, stack.context(service_workers="allow") as context:
        await context.grant_permissions(["notifications"], origin=stack.bridge.url)
        made = json.dumps(msgspec.to_builtins(service.browser("this").subscription))
        await context.add_init_script(f"({BROWSERS_SERVICE})({made})")
        page = await context.new_page()
        stack.watch(page)
        # An older version of the page was installed before.
        await page.goto(f"{stack.bridge.url}/healthz")
        await page.evaluate("async () => { await (await caches.open('sprite-shell-old')).add('/icon.svg') }")
        await stack.show(page)
        await page.evaluate("() => navigator.serviceWorker.ready.then(() => null)")
        service.public_key = await page.evaluate("async () => (await (await fetch('/push/key')).json()).key")
        yield Window(page, await Worker.of(stack, page), service)


@pytest_asyncio.fixture(loop_scope="session")
async def page(stack: PageStack, window: Window) -> Page:
    """Reload the page in the window that all tests share."""
    await stack.let_in(window.page.context)
    await window.page.goto(f"{stack.bridge.url}/healthz")
    await window.page.evaluate("() => { localStorage.clear(); sessionStorage.clear(); }")
    await window.worker.close_all()
    window.service.taken.clear()
    await stack.show(window.page)
    return window.page


async def test_page_installs_and_opens_without_its_bridge(stack: PageStack, page: Page) -> None:
    await is_installable(page)
    await opens_without_its_bridge(stack, page)


async def is_installable(page: Page) -> None:
    devtools = await page.context.new_cdp_session(page)
    manifest = await devtools.send("Page.getAppManifest")
    assert manifest["errors"] == []
    said = json.loads(manifest["data"])
    assert (said["id"], said["start_url"], said["scope"], said["display"]) == ("/", "/", "/", "standalone")
    problems = (await devtools.send("Page.getInstallabilityErrors"))["installabilityErrors"]
    await devtools.detach()
    # A private window, as in every test, never gets this offer.
    assert [each["errorId"] for each in problems if each["errorId"] != "in-incognito"] == []
    for icon in said["icons"]:
        src = manifest["url"].rsplit("/", 1)[0] + "/" + icon["src"]
        size = await page.evaluate(
            "async (src) => { const image = new Image(); image.src = src; await image.decode();"
            " return `${image.naturalWidth}x${image.naturalHeight}`; }",
            src,
        )
        assert size == icon["sizes"]


async def opens_without_its_bridge(stack: PageStack, page: Page) -> None:
    """Open the page offline with its draft intact; it reconnects once the bridge is back."""
    (stack.workspace / "documents").mkdir(exist_ok=True)
    (stack.workspace / "documents/secret.txt").write_text("secret")
    await page.fill("#composer-text", "half a thought")
    await stack.stop_bridge()
    await page.reload()
    await expect(page.locator("#composer-text")).to_have_value("half a thought")
    await expect(page.locator(".link-words")).to_have_text("Reconnecting")
    await expect(page.locator(".run-words")).to_contain_text("does not answer")
    # Lazily loaded parts of the page are cached as well.
    await page.get_by_role("tab", name="Memory").locator("visible=true").click()
    await page.get_by_role("tab", name="Files").click()
    panel = page.get_by_role("region", name="Memory")
    await expect(panel).to_contain_text("Nothing is lost: memory lives with your sprite")
    policy = await page.evaluate("async () => (await caches.match('/')).headers.get('Content-Security-Policy')")
    assert "require-trusted-types-for 'script'" in policy
    await stack.start_bridge()
    await ready(page)
    await expect(page.locator("#composer-text")).to_have_value("half a thought")
    # A list that was requested offline appears once the bridge answers.
    await expect(panel.get_by_role("button", name="secret.txt", exact=True)).to_be_visible()
    await page.get_by_role("tab", name="To do").locator("visible=true").click()
    await page.get_by_role("button", name="Notifications\u2026").click()
    await expect(page.get_by_role("dialog", name="Notifications")).to_contain_text("They are off.")


async def test_service_worker_caches_no_answers(stack: PageStack, page: Page) -> None:
    """It caches no PDF either, drops files of older versions, and shows no old page after logout."""
    await page.wait_for_function("async () => !(await caches.has('sprite-shell-old'))")
    assert await page.evaluate("() => navigator.serviceWorker.controller !== null")
    await ask(page, "Hello")
    await pdf_is_shown_by_the_browsers_viewer(stack, page)
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
    assert [path for path in files if not path.startswith("/-/") or not path.endswith((".js", ".css", ".svg"))] == []
    assert len({path.split("/")[2] for path in files}) == 1

    await page.context.clear_cookies()
    await page.reload()
    await expect(page.get_by_role("heading", name="Please log in")).to_be_visible()


# --- notifications ---

TOLD = {"key": "m1", "kind": "ended", "title": "The tests are green", "body": "All 900.", "at": 1.79e9, "url": "/"}


async def test_notifications_show_and_lead_to_their_place(stack: PageStack, page: Page, window: Window) -> None:
    """Each is shown once while the page is hidden, and cleared when the page becomes visible."""
    worker = window.worker
    await page.goto("about:blank")
    await worker.push(TOLD)
    await worker.until_shown(1)
    await worker.push({**TOLD, "title": "Again"})
    # A message that cannot be decrypted still shows a generic notification.
    await worker.push("{")
    await worker.push(question_seen_in_part("r1"))
    await worker.push({**TOLD, "key": "b1", "kind": "budget", "raises": True})
    shown = {each["tag"]: each for each in await worker.until_shown(4)}
    assert set(shown) == {"m1", "sprite", "r1", "b1"}
    assert shown["b1"]["actions"] == ["go-on"]
    assert shown["m1"]["title"] == "Again"
    assert shown["sprite"]["title"] == "Sprite has something for you"
    assert (shown["m1"]["actions"], shown["m1"]["requireInteraction"]) == ([], False)
    # It can be denied there, but not allowed.
    assert (shown["r1"]["actions"], shown["r1"]["requireInteraction"]) == (["deny"], True)
    assert worker.complaints == []

    await stack.show(page)
    await worker.until_shown(0)
    await worker.push(TOLD)
    await worker.push({**TOLD, "key": "test", "kind": "test", "title": "Notifications work"})
    assert [each["title"] for each in await worker.until_shown(1)] == ["Notifications work"]
    await worker.close_all()
    await a_click_leads_to_its_place(stack, page, worker)


def question_seen_in_part(request_id: str) -> dict[str, Any]:
    """Return the bridge's message for a question that does not fit, to a person with text enabled."""
    words = ("May Sprite run a command?", "touch allowed")
    notice = Notice(request_id, "permission", "local", "local", *words, 1.79e9, request_id, is_whole=False)
    told: dict[str, Any] = json.loads(encoded(payload_of(notice, words=True)))
    return told


async def a_click_leads_to_its_place(stack: PageStack, page: Page, worker: Worker) -> None:
    """Click through to the mission of the notification; never to another site."""
    await ask(page, "Hello")
    mission = await page.locator(".thread-list .exchange").last.get_attribute("data-mission")
    await worker.push({**TOLD, "kind": "test", "url": f"/#mission={mission}"})
    await worker.until_shown(1)
    await worker.click("m1")
    await expect(page.locator(f".exchange[data-mission='{mission}']")).to_be_focused()
    await worker.push({**TOLD, "kind": "test", "url": "https://evil.example/#question=r1"})
    await worker.until_shown(1)
    await worker.click("m1")

    await page.goto(f"{stack.bridge.url}/healthz")
    await page.goto(f"{stack.bridge.url}/#question=r1")
    await expect(page.locator(".toast")).to_contain_text("not open any more")
    await expect(page).to_have_url(f"{stack.bridge.url}/")


# --- enabling notifications ---


#: Makes the browser block notifications, and records the permission requests.
DENY = """
() => {
  globalThis.asked = Object.getOwnPropertyDescriptor(Notification, 'permission');
  Object.defineProperty(Notification, 'permission', { configurable: true, get: () => 'denied' });
}
"""


def known_browsers(stack: PageStack) -> list[dict[str, Any]]:
    return rows(stack.data / "bridge.db", "SELECT endpoint FROM push_subscriptions")


async def open_by_palette(page: Page) -> None:
    await page.keyboard.press("Control+k")
    await page.keyboard.type("Notifications")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("dialog", name="Notifications")).to_be_visible()


async def test_notifications_are_enabled_by_keyboard(stack: PageStack, page: Page, window: Window) -> None:
    """They are tested, configured and disabled as well; a browser that blocks or lacks them shows help."""
    dialog = page.get_by_role("dialog", name="Notifications")
    await page.evaluate(DENY)
    await open_by_palette(page)
    await expect(dialog).to_contain_text("This browser blocks them.")
    await dialog.get_by_role("button", name="Close").click()
    await page.evaluate("() => Object.defineProperty(Notification, 'permission', globalThis.asked)")

    await open_by_palette(page)
    await expect(dialog).to_contain_text("They are off.")
    await expect(dialog.get_by_role("radio", name="Only that Sprite has something")).to_be_checked()
    await dialog.get_by_role("button", name="Turn on").press("Enter")
    await expect(dialog).to_contain_text("They are on.")
    await dialog.get_by_role("radio", name="What it is about").press("Space")
    send = dialog.get_by_role("button", name="Send a test")
    # A key press on the button, disabled while the choice is stored, has no effect.
    await expect(send).to_be_enabled()
    await send.press("Enter")
    (got,) = await window.service.pushed()
    assert got.message["title"] == "Notifications work"
    await window.worker.push(got.message)
    await window.worker.until_shown(1)
    await expect(dialog).to_contain_text("A test was sent.")
    assert await violations(page) == []
    await shoot(page, "notifications")

    await page.reload()
    await ready(page)
    await open_by_palette(page)
    await expect(dialog).to_contain_text("They are on.")
    await expect(dialog.get_by_role("radio", name="What it is about")).to_be_checked()
    await dialog.get_by_role("button", name="Turn off").press("Enter")
    await expect(dialog).to_contain_text("They are off.")
    assert known_browsers(stack) == []
    await dialog.get_by_role("button", name="Close").click()

    await page.evaluate("() => { delete globalThis.PushManager }")
    await open_by_palette(page)
    await expect(dialog).to_contain_text("This browser cannot show notifications.")
    await expect(dialog.get_by_role("button", name="Turn on")).to_have_count(0)


async def test_question_is_answered_from_its_notification(stack: PageStack, page: Page, window: Window) -> None:
    """No page is open when it comes; a late answer is reported as such."""
    worker = window.worker
    # An enabled subscription is renewed by each visit, even if the bridge has lost it.
    await page.evaluate("() => localStorage.setItem('sprite.notifications', 'on')")
    chosen = await page.evaluate(
        """async () => (await fetch('/notify/settings', {method: 'PUT', body: '{"words": true}'})).status"""
    )
    assert chosen == 200
    await page.reload()
    await ready(page)
    await eventually(lambda: known_browsers(stack) != [], "the bridge has no subscription of the browser")
    await say(page, "run `touch allowed-there`")
    await expect(page.locator(".question").last).to_contain_text("touch allowed-there")
    await page.goto("about:blank")

    got = (await window.service.pushed())[0].message
    assert (got["kind"], got["body"], got["allow"]) == ("permission", "touch allowed-there", True)
    await worker.push(got)
    (shown,) = await worker.until_shown(1)
    assert (shown["actions"], shown["requireInteraction"]) == (["allow", "deny"], True)
    await worker.click(shown["tag"], "allow")
    await eventually((stack.workspace / "allowed-there").exists, "the allowed command did not run")
    assert await worker.shown() == []

    # The same notification on another of the person's devices, which has its own tags.
    await worker.push({**got, "key": "other"})
    await worker.until_shown(1)
    await worker.click("other", "deny")
    (late,) = await worker.until_shown(1)
    assert late["title"] == "Your answer did not count"
    assert "not open any more" in late["body"]


# --- the viewer of PDF files ---


def document(words: str) -> bytes:
    """Return a PDF with one page."""
    drawn = f"BT /F1 24 Tf 20 100 Td ({words}) Tj ET".encode()
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 300 200]/Contents 4 0 R/Resources<</Font<</F1 5 0 R>>>>>>",
        b"<</Length %d>>\nstream\n%s\nendstream" % (len(drawn), drawn),
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    ]
    made, places = b"%PDF-1.4\n", []
    for number, each in enumerate(objects, start=1):
        places.append(len(made))
        made += b"%d 0 obj\n%s\nendobj\n" % (number, each)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    end = b"trailer<</Size 6/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % len(made)
    return made + b"xref\n0 6\n0000000000 65535 f \n" + table + end


async def pdf_is_shown_by_the_browsers_viewer(stack: PageStack, page: Page) -> None:
    """Show a PDF in the browser's own viewer; the surrounding document contains nothing of the file."""
    (stack.workspace / "documents/lease 2026.pdf").write_bytes(document("The lease"))
    await page.get_by_role("tab", name="Memory").locator("visible=true").click()
    panel = page.get_by_role("region", name="Memory")
    await panel.get_by_role("tab", name="Files").click()
    await panel.get_by_role("button", name="lease 2026.pdf", exact=True).click()
    frame = await (await page.get_by_role("dialog").locator("iframe").element_handle()).content_frame()
    assert frame is not None
    await frame.wait_for_url("**/files/documents/lease%202026.pdf?preview")
    about = "() => [document.contentType, document.scripts.length, document.body.innerText.trim()]"
    assert await frame.evaluate(about) == ["application/pdf", 0, ""]
    await shoot(page, "files-pdf")
    await page.get_by_role("dialog").get_by_role("button", name="Close").click()
