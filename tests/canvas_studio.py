"""Stacks of the canvas on which the agent or another page draws for tests in a real browser."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from playwright.async_api import Locator, Page

from tests.bridge_harness import PageClient
from tests.harness import Message, rows
from tests.page_harness import PageStack

_numbers = itertools.count(1)
Block = dict[str, Any]


class Studio:
    """A separate stack on which the agent or another page draws as the test says."""

    def __init__(self, stack: PageStack, client: PageClient, stack_id: str) -> None:
        self._stack = stack
        self._client = client
        self.stack_id = stack_id

    async def draw(self, title: str, *blocks: Block, card_type: str = "notes") -> str:
        """Let the agent draw a card; return its id."""
        await self._call("create_card", {"title": title, "card_type": card_type, "blocks": list(blocks)})
        return str(self._card("title = ? ORDER BY rowid DESC", title)["card_id"])

    async def put(self, title: str, *blocks: Block, **more: Any) -> str:
        """Make a card from another page, which takes no turn of the agent; return its id."""
        made = await self.interact(
            action="create_card", title=title, blocks=list(blocks), stack_id=self.stack_id, **more
        )
        return str(made["payload"]["card_id"])

    async def change(self, card_id: str, *blocks: Block) -> None:
        """Let the agent change a card."""
        await self._call("update_card", {"card_id": card_id, "blocks": list(blocks)})

    async def interact(self, **interaction: Any) -> Message:
        """Interact with the canvas from another page."""
        return await self._client.ask("canvas_interaction", interaction)

    def kept(self, card_id: str) -> dict[str, Any]:
        """Return a card's position as stored by the server."""
        card = self._card("card_id = ?", card_id)
        return {**json.loads(card["position_json"] or "{}"), **json.loads(card["size_json"] or "{}")}

    def _card(self, where: str, value: str) -> dict[str, Any]:
        database = self._stack.workspace / ".os/workspace.db"
        return rows(database, f"SELECT * FROM cards WHERE {where}", (value,))[0]

    async def _call(self, tool: str, arguments: dict[str, Any]) -> None:
        words = f"drawing number {next(_numbers)}."
        use = {"type": "tool_use", "name": f"mcp__sprite__{tool}", "input": arguments}
        self._stack.model.script.agent({"match": words, "on": "prompt", "blocks": [use]})
        mission = await self._client.send("mission", {"text": words, "stack_id": self.stack_id})
        ended = await self._client.end_of(mission)
        assert ended["event"] == "complete", ended


@asynccontextmanager
async def studio(stack: PageStack, name: str) -> AsyncIterator[Studio]:
    """Make a new stack, in front on pages without another choice; archive it at the end if the bridge still runs."""
    async with stack.bridge.page(stack.cookie, resume={}) as client:
        await client.link("ready")
        made = await client.ask("canvas_interaction", {"action": "create_stack", "name": name})
        stack_id = made["payload"]["stack_id"]
        yield Studio(stack, client, stack_id)
        if not client.websocket.closed:
            await client.ask("canvas_interaction", {"action": "archive_stack", "stack_id": stack_id})


def block(type_: str, **data: Any) -> Block:
    return {"type": type_, "data": data}


def card(page: Page, title: str) -> Locator:
    return page.get_by_role("article", name=title, exact=True)
