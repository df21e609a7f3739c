"""`/mcp` at the bridge: the protocol's own client, over HTTP, against a real bridge with a real agent behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio

from tests.bridge_harness import BridgeProcess, running_bridge
from tests.mcp_client import called, mcp_client, person_token

pytestmark = pytest.mark.asyncio(loop_scope="module")


@dataclass
class Rooms:
    """A bridge to whose agent something was said, and a token with every scope."""

    bridge: BridgeProcess
    token: str


@pytest_asyncio.fixture(scope="module", loop_scope="module", name="rooms")
async def rooms_(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Rooms]:
    data = tmp_path_factory.mktemp("mcp") / "data"
    async with running_bridge(data) as bridge:
        async with bridge.page(await bridge.login()) as page:
            await page.link("ready")
            for text in ("My harbour is in Kiel.", "My ship is called Ada.", "make a table card of apples 3, pears 5"):
                assert (await page.mission(text))["event"] == "complete"
        token = await person_token(bridge, "memory:read", "ask", "actions")
        yield Rooms(bridge, token)


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_every_tool_answers_in_each_revision_of_the_protocol(rooms: Rooms, mode: str) -> None:
    async with mcp_client(rooms.bridge, rooms.token, mode=mode) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert names == ["search_memory", "around", "read_memory", "list_actions", "ask_sprite", "add_action"]
        refused, text, given = await called(client, "search_memory", query="harbour")
        assert not refused, text
        assert "My harbour is in Kiel." in text
        turn = next(hit["id"] for hit in given["hits"] if hit["kind"] == "turn")
        refused, text, given = await called(client, "read_memory", file="user.md")
        assert not refused, text
        assert [file["name"] for file in given["files"]] == ["user.md"]
        refused, text, given = await called(client, "add_action", content="Paint the ship", due="2031-05-01", tz="UTC")
        assert not refused, text
        assert given["action"]["content"] == "Paint the ship"
        refused, text, given = await called(client, "list_actions")
        assert not refused, text
        assert "Paint the ship" in text
        assert turn
