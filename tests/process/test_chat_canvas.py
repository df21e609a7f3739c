"""The canvas in the terminal client: its cards are drawn as they change, and by /cards."""

from __future__ import annotations

from sprite.protocol.messages import CanvasUpdate
from sprite.protocol.shapes import Block, Card, Stack
from tests.chat_stage import in_a_pipe, in_a_terminal
from tests.chat_stand_in import state_sync

STACKS = [Stack("s-1", "Trips", archived=False), Stack("s-2", "Work", archived=False)]


def text(words: str) -> list[Block]:
    return [Block("b", "text", {"content": words})]


CARDS = [
    Card("c-1", "s-1", "Lund", "notes", None, None, text("go by train"), archived=False),
    Card("c-2", "s-2", "Budget", "notes", None, None, text("none is left"), archived=False),
    Card("c-3", "s-2", "Old", "notes", None, None, text("long ago"), archived=True),
]


async def test_cards_of_all_stacks_are_drawn() -> None:
    for opened in (in_a_terminal, in_a_pipe):
        async with opened(state_sync(stacks=STACKS, cards=CARDS)) as chat:
            await chat.until_seen("2 cards on the canvas: /cards shows them")
            await chat.answer(await chat.mission("draw a map"), "Done.")
            await chat.visitor.send(CanvasUpdate("create_card", "c-4", "s-1", "Map", "notes", text("of Lund")), seq=11)
            await chat.until_seen("of Lund")
            await chat.visitor.send(CanvasUpdate("close_card", "c-2", "s-2", "Budget", "notes", []), seq=12)
            await chat.until_seen("card closed: Budget")
            chat.type("/cards\r" if opened is in_a_terminal else "/cards\n")
            await chat.until_seen("go by train")
            await chat.until(lambda now: list(now.cards) == ["c-1", "c-4"])
            assert "none is left" not in chat.seen
            assert "long ago" not in chat.seen
