"""The setting for text in notifications: personal, access-controlled and validated."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.bridge_harness import Bridge, running_bridge

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="bridge")
async def bridge_(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bridge]:
    """Run one bridge for all tests; each test restores the setting."""
    async with running_bridge(tmp_path_factory.mktemp("notify") / "data") as bridge:
        yield bridge


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="cookie")
async def cookie_(bridge: Bridge) -> str:
    return await bridge.login()


async def asked(bridge: Bridge, method: str, headers: dict[str, str], body: bytes = b"") -> tuple[int, str]:
    async with bridge.http() as session, session.request(method, "/notify/settings", data=body, headers=headers) as got:
        return got.status, await got.text()


async def test_notification_text_is_off_until_enabled(bridge: Bridge, cookie: str) -> None:
    page = {"Cookie": cookie, "Origin": bridge.url}
    assert await asked(bridge, "GET", {"Cookie": cookie}) == (200, '{"words":false}')
    assert await asked(bridge, "PUT", page, b'{"words": true}') == (200, '{"words":true}')
    assert await asked(bridge, "GET", {"Cookie": cookie}) == (200, '{"words":true}')
    assert await asked(bridge, "PUT", page, b'{"words": false}') == (200, '{"words":false}')


async def test_notification_settings_need_session_and_origin(bridge: Bridge, cookie: str) -> None:
    assert (await asked(bridge, "GET", {}))[0] == 401
    assert (await asked(bridge, "PUT", {"Origin": bridge.url}, b'{"words": true}'))[0] == 401
    assert (await asked(bridge, "PUT", {"Cookie": cookie}, b'{"words": true}'))[0] == 403
    foreign = await asked(bridge, "PUT", {"Cookie": cookie, "Origin": "https://evil.example"}, b'{"words": true}')
    assert foreign[0] == 403
    assert await asked(bridge, "GET", {"Cookie": cookie}) == (200, '{"words":false}')


async def test_invalid_notification_settings_are_rejected(bridge: Bridge, cookie: str) -> None:
    page = {"Cookie": cookie, "Origin": bridge.url}
    for body in (b"", b"null", b"[]", b'{"words": 1}', b'{"wordy": true}', b"\xff\xfe", b'{"words": true}x'):
        status, text = await asked(bridge, "PUT", page, body)
        assert status == 400, body
        assert "words" in text
    status, text = await asked(bridge, "PUT", page, b'{"words": true}' + b" " * 100_000)
    assert status == 413
    assert "8 KiB" in text
    assert await asked(bridge, "GET", page) == (200, '{"words":false}')
