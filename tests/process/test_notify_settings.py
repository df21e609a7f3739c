"""What notifications say is each person's own choice: who may read and change it, and what is refused."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.bridge_harness import Bridge, running_bridge

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="bridge")
async def bridge_(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Bridge]:
    """One for all of them: each leaves the choice as it was."""
    async with running_bridge(tmp_path_factory.mktemp("notify") / "data") as bridge:
        yield bridge


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="cookie")
async def cookie_(bridge: Bridge) -> str:
    return await bridge.login()


async def asked(bridge: Bridge, method: str, headers: dict[str, str], body: bytes = b"") -> tuple[int, str]:
    async with bridge.http() as session, session.request(method, "/notify/settings", data=body, headers=headers) as got:
        return got.status, await got.text()


async def test_a_person_chooses_whether_notifications_carry_words_and_the_default_is_that_they_do_not(
    bridge: Bridge, cookie: str
) -> None:
    page = {"Cookie": cookie, "Origin": bridge.url}
    assert await asked(bridge, "GET", {"Cookie": cookie}) == (200, '{"words":false}')
    assert await asked(bridge, "PUT", page, b'{"words": true}') == (200, '{"words":true}')
    assert await asked(bridge, "GET", {"Cookie": cookie}) == (200, '{"words":true}')
    assert await asked(bridge, "PUT", page, b'{"words": false}') == (200, '{"words":false}')


async def test_nobody_else_reads_or_changes_it(bridge: Bridge, cookie: str) -> None:
    assert (await asked(bridge, "GET", {}))[0] == 401
    assert (await asked(bridge, "PUT", {"Origin": bridge.url}, b'{"words": true}'))[0] == 401
    assert (await asked(bridge, "PUT", {"Cookie": cookie}, b'{"words": true}'))[0] == 403
    foreign = await asked(bridge, "PUT", {"Cookie": cookie, "Origin": "https://evil.example"}, b'{"words": true}')
    assert foreign[0] == 403
    assert await asked(bridge, "GET", {"Cookie": cookie}) == (200, '{"words":false}')


async def test_what_is_no_choice_is_refused_in_words_and_changes_nothing(bridge: Bridge, cookie: str) -> None:
    page = {"Cookie": cookie, "Origin": bridge.url}
    for body in (b"", b"null", b"[]", b'{"words": 1}', b'{"wordy": true}', b"\xff\xfe", b'{"words": true}x'):
        status, text = await asked(bridge, "PUT", page, body)
        assert status == 400, body
        assert "words" in text
    status, text = await asked(bridge, "PUT", page, b'{"words": true}' + b" " * 100_000)
    assert status == 413
    assert "8 KiB" in text
    assert await asked(bridge, "GET", page) == (200, '{"words":false}')
