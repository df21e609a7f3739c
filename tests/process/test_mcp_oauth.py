"""OAuth at `/mcp`: the protocol's own client asks to be let in, and a person says yes or no in a browser."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.bridge_harness import BridgeProcess, running_bridge
from tests.mcp_browser import Browser, Kept, program
from tests.mcp_client import called, mcp_client

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="bridge")
async def bridge_(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[BridgeProcess]:
    async with running_bridge(tmp_path_factory.mktemp("oauth") / "data") as bridge:
        yield bridge


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="cookie")
async def cookie_(bridge: BridgeProcess) -> str:
    return await bridge.login()


async def test_a_program_is_let_in_by_a_person_who_ticks_what_it_may(bridge: BridgeProcess, cookie: str) -> None:
    browser, kept = Browser(bridge, cookie, ["memory:read"]), Kept()
    async with mcp_client(bridge, program(browser, kept, "Ada <b>Editor</b>")) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert names == ["search_memory", "around", "read_memory", "list_actions"]
        assert (await called(client, "search_memory", query="anything"))[0] is False
        refused, words, _ = await called(client, "ask_sprite", text="Hello")
        assert refused
        assert "it has not the scope ask" in words
    assert browser.ticks() == {"memory:read": True, "actions": True, "ask": False}
    assert "<b>Editor" not in browser.pages[0]
    assert "Ada &lt;b&gt;Editor&lt;/b&gt;" in browser.pages[0]
    assert "127.0.0.1:49152" in browser.pages[0]
    assert kept.tokens is not None
    assert kept.tokens.scope == "memory:read"
    _, listed, _ = await bridge.run("users", "tokens", "local")
    assert "Ada bEditorb" in listed
