"""The agent's canvas tools on a real workspace.db, without an agent: their answers, stored rows and sent events."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sprite.agent.tools.canvas import canvas_reader, canvas_tools
from sprite.boot.canvas import CanvasContext
from sprite.protocol.messages import CanvasUpdate, StackUpdate
from sprite.protocol.shapes import Card
from sprite.workspace.database import Effect, WorkspaceDB


@dataclass
class Canvas:
    """The agent's tools on a real store, with the events sent to clients."""

    workspace: WorkspaceDB
    stack: str | None = None
    sent: list[CanvasUpdate] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.sight = CanvasContext(self.workspace)
        tools = canvas_tools(self.workspace, self._publish, lambda: self.stack, self.sight)
        self._tools = {t.name: t for t in [*tools, canvas_reader(self.workspace, self.sight)]}

    async def _publish(self, update: CanvasUpdate | StackUpdate, effects: Sequence[Effect]) -> None:
        await self.workspace.record([], effects)
        if isinstance(update, CanvasUpdate):
            self.sent.append(update)

    async def answer(self, name: str, **arguments: Any) -> dict[str, Any]:
        """Return the answer of a tool."""
        answered: dict[str, Any] = await self._tools[name].handler(arguments)
        return answered

    async def use(self, name: str, **arguments: Any) -> dict[str, Any]:
        answer = await self.answer(name, **arguments)
        assert not answer.get("is_error"), answer
        parsed: dict[str, Any] = json.loads(answer["content"][0]["text"])
        return parsed

    async def refused(self, name: str, **arguments: Any) -> str:
        """Return the one-line error that the model gets."""
        before = await self.workspace.cards()
        answer = await self.answer(name, **arguments)
        assert answer.get("is_error"), answer
        text: str = answer["content"][0]["text"]
        assert text.startswith("Not drawn: ")
        assert "\n" not in text
        assert await self.workspace.cards() == before, "a refused change leaves no trace"
        return text

    async def card(self, card_id: str) -> Card:
        card = await self.workspace.card(card_id)
        assert card is not None
        return card

    async def read(self, **arguments: Any) -> str:
        """Return the output of `read_canvas`."""
        answer = await self.answer("read_canvas", **arguments)
        assert not answer.get("is_error"), answer
        text: str = answer["content"][0]["text"]
        return text

    async def person_writes(self, card_id: str, block_id: str, data: dict[str, Any]) -> None:
        """Change a block in place, as the person."""
        (seen,) = [block.version for block in (await self.card(card_id)).blocks if block.id == block_id]
        assert await self.workspace.change_block(card_id, block_id, data, seen) is not None
