"""Push routes of a real bridge: the key, subscriptions, a test message and permission decisions."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
import pytest_asyncio

from bridge.notify.push import Subscription
from tests.bridge_harness import Bridge, running_bridge
from tests.push_service import PushService
from tests.scripted_model import OfflineModel

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass
class Door:
    """A bridge with an agent in `ask` mode, and a logged-in browser."""

    bridge: Bridge
    cookie: str
    service: PushService
    model: OfflineModel

    async def ask(
        self, method: str, path: str, body: Any = None, *, cookie: str | None = None, origin: str | None = None
    ) -> tuple[int, str]:
        headers = {"Cookie": self.cookie if cookie is None else cookie}
        if origin != "":
            headers["Origin"] = origin or self.bridge.url
        data = body if isinstance(body, bytes) else msgspec.json.encode(body)
        async with (
            self.bridge.http() as session,
            session.request(method, path, data=data, headers=headers, allow_redirects=False) as got,
        ):
            return got.status, await got.text()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def page(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Door]:
    data = tmp_path_factory.mktemp("push") / "data"
    async with OfflineModel() as model, PushService() as service:
        settings: dict[str, Any] = {
            "TESTS_PUSH_INSIDE": "1",
            "ANTHROPIC_BASE_URL": model.url,
            "ANTHROPIC_API_KEY": "key",
            "SPRITE_MODEL": "claude-sonnet-4-5",
        }
        async with running_bridge(data, "--permissions", "ask", "--daily-usd", "0.5", **settings) as bridge:
            found = Door(bridge, await bridge.login(), service, model)
            status, key = await found.ask("GET", "/push/key")
            assert status == 200
            service.public_key = json.loads(key)["key"]
            yield found


ACTS: list[tuple[str, str, Any]] = [
    ("POST", "/push/subscriptions", {"endpoint": "https://push.example.org/x", "keys": {"p256dh": "", "auth": ""}}),
    ("DELETE", "/push/subscriptions", {"endpoint": "https://push.example.org/x"}),
    ("POST", "/push/test", {"endpoint": "https://push.example.org/x"}),
    ("POST", "/push/permission", {"request_id": "r1", "decision": "allow"}),
]
GO_ON = "/push/go-on"


async def test_push_permission_is_decided_once(page: Door) -> None:
    """Later answers receive status 409."""
    async with page.bridge.page(page.cookie) as shown:
        await shown.type("state_sync")
        mission = await shown.send("mission", {"text": "run `touch allowed`"})
        question = await shown.type("permission_request")
        word = {"request_id": question["request_id"], "decision": "allow"}
        answers = await asyncio.gather(*(page.ask("POST", "/push/permission", word) for _ in range(2)))
        assert sorted(status for status, _ in answers) == [204, 409]
        assert any("not open any more" in words for _, words in answers)
        assert (await shown.type("permission_resolved"))["decision"] == "allow"
        assert (await shown.end_of(mission))["event"] == "complete"
        assert (page.bridge.workspace / "allowed").exists()
        always = {**word, "decision": "always"}
        assert (await page.ask("POST", "/push/permission", always))[0] == 400


async def test_push_continues_paused_agent(page: Door) -> None:
    page.model.script.agent({"match": "expensive", "usage": {"input_tokens": 200_000}})
    async with page.bridge.page(page.cookie) as shown:
        await shown.type("state_sync")
        assert (await shown.end_of(await shown.send("mission", {"text": "expensive"})))["event"] == "complete"
        mission = await shown.send("mission", {"text": "count to ten"})
        assert (await shown.end_of(mission))["code"] == "budget_used_up"
        assert (await page.ask("POST", GO_ON, {}, cookie=""))[0] == 401
        assert (await page.ask("POST", GO_ON, {}, origin="https://evil.example"))[0] == 403
        assert (await page.ask("POST", GO_ON, {}))[0] == 204
        said = await shown.type("chat_said")
        while said["text"] != "Go on.":
            said = await shown.type("chat_said")
        assert (await shown.end_of(said["mission_id"]))["code"] == "budget_used_up"
        # A click on a notification that says so raises today's limit.
        assert (await page.ask("POST", GO_ON, {"raise_limit": True}))[0] == 204
        said = await shown.type("chat_said")
        while said["text"] != "Go on.":
            said = await shown.type("chat_said")
        assert (await shown.end_of(said["mission_id"]))["event"] == "complete"


async def test_push_routes_need_session_and_origin(page: Door) -> None:
    """A browser can subscribe, request a test message and unsubscribe."""
    service = page.service
    made = service.browser("phone").subscription
    endpoint = {"endpoint": made.endpoint}
    as_browsers_write_it = {**msgspec.to_builtins(made), "expirationTime": None}
    assert (await page.ask("POST", "/push/subscriptions", as_browsers_write_it))[0] == 201
    assert (await page.ask("POST", "/push/test", endpoint))[0] == 202
    got = await service.pushed_of("test")
    assert got.message["url"] == "/"

    for method, path, body in ACTS:
        assert (await page.ask(method, path, body, cookie=""))[0] == 401, path
        assert (await page.ask(method, path, body, origin="https://evil.example"))[0] == 403, path
        assert (await page.ask(method, path, body, origin=""))[0] == 403, path
        deep = b'{"x":' + b"[" * 4000 + b"]" * 4000 + b"}"
        for wrong in (b"", b"[]", b"null", b"{", b"\xff", b'{"endpoint": 1}', b'{"request_id": ""}', deep):
            assert (await page.ask(method, path, wrong))[0] == 400, (path, wrong)
        assert (await page.ask(method, path, b" " * 100_000))[0] == 413, path
    assert (await page.ask("GET", "/push/key", cookie=""))[0] == 401
    status, words = await page.ask("POST", "/push/subscriptions", ACTS[0][2])
    assert (status, "keys" in words) == (400, True)

    # Removed subscriptions are unknown.
    assert (await page.ask("DELETE", "/push/subscriptions", endpoint))[0] == 204
    assert (await page.ask("DELETE", "/push/subscriptions", endpoint))[0] == 204
    assert (await page.ask("POST", "/push/test", endpoint))[0] == 404
    assert [each.message["kind"] for each in service.taken if each.message["kind"] != "budget"] == ["test"]

    # A logout removes the subscription too.
    assert (await page.ask("POST", "/push/subscriptions", as_browsers_write_it))[0] == 201
    assert (await page.ask("POST", "/logout"))[0] == 303
    again = await _logged_in_again(page)
    assert (await page.ask("POST", "/push/test", endpoint, cookie=again))[0] == 404


async def _logged_in_again(page: Door) -> str:
    _, said, _ = await page.bridge.run("users", "link", "local")
    return await page.bridge.login(next(word for word in said.split() if "/login?token=" in word))


async def test_subscription_accepts_browser_json() -> None:
    text = b'{"endpoint":"https://p.example/x","expirationTime":null,"keys":{"p256dh":"A","auth":"B"}}'
    assert msgspec.json.decode(text, type=Subscription).keys.auth == "B"
