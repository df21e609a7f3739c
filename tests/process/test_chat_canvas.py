"""The canvas in the terminal client: cards of the current stack, and the person's notes."""

from __future__ import annotations

from sprite.protocol.messages import Ack, CanvasUpdate, Error, StackUpdate
from sprite.protocol.shapes import Block, Card, Stack
from tests.chat_stage import Chat, in_a_pipe, in_a_terminal
from tests.chat_stand_in import state_sync

STACKS = [
    Stack("s-1", "Trips", archived=False),
    Stack("s-2", "Work", archived=False),
    Stack("s-3", "Old", archived=True),
]


def text(words: str) -> list[Block]:
    return [Block("b", "text", {"content": words})]


CARDS = [
    Card("c-1", "s-1", "Lund", "notes", None, None, text("go by train"), archived=False),
    Card("c-2", "s-2", "Budget", "notes", None, None, text("none is left"), archived=False),
]


async def drawn(chat: Chat, card_id: str, stack_id: str, title: str, words: str, seq: int) -> None:
    await chat.visitor.send(CanvasUpdate("create_card", card_id, stack_id, title, "notes", text(words)), seq=seq)


async def test_cards_and_messages_use_current_stack() -> None:
    async with in_a_terminal(state_sync(stacks=STACKS, cards=CARDS)) as chat:
        await chat.until_seen("1 card on the stack Work: /cards draws; 1 card on other stacks: /stack shows them")
        chat.type("/cards\r")
        await chat.until_seen("none is left")
        assert "go by train" not in chat.seen
        chat.type("draw a map\r")
        message = await chat.visitor.receive("mission")
        assert message["payload"] == {"text": "draw a map", "stack_id": "s-2"}
        await chat.visitor.send(Ack("accepted", position=0), reply_to=message["id"])
        await chat.visitor.send(StackUpdate("s-4", "Newest", archived=False), seq=11)
        await drawn(chat, "c-3", "s-1", "Map", "of Lund", 12)
        await chat.until_seen("card drawn: Map (on another stack: /stack 1 goes there)")
        await drawn(chat, "c-4", "s-2", "Sums", "two and two", 13)
        await chat.until_seen("two and two")
        assert "of Lund" not in chat.seen
        chat.type("/stack trips\r")
        await chat.until_seen("you are on the stack Trips: 2 cards, /cards draws")
        chat.type("/cards\r")
        await chat.until_seen("go by train")
        await chat.until_seen("of Lund")
        chat.type("/stack\r")
        await chat.until_seen("2 cards, you are here")


async def test_missing_or_archived_stack_is_not_selected() -> None:
    async with in_a_terminal(state_sync(stacks=STACKS, cards=CARDS)) as chat:
        for words in ("9", "Old", "3", "0"):
            chat.type(f"/stack {words}\r")
            await chat.until_seen(f"There is no open stack {words}.")
        assert chat.conversation.board.current == STACKS[1]
        await chat.visitor.send(StackUpdate("s-2", "Work", archived=True), seq=11)
        await chat.until(lambda now: now.board.current == STACKS[0])


async def test_note_is_resent_after_disconnect() -> None:
    """The note goes to the current stack."""
    async with in_a_terminal(state_sync(stacks=STACKS, cards=CARDS)) as chat:
        chat.type("/stack 1\r/note buy **milk**\r")
        first = await chat.visitor.receive("canvas_interaction")
        assert first["payload"] == {
            "action": "create_card",
            "title": "",
            "blocks": [{"type": "text", "data": {"content": "buy **milk**"}}],
            "stack_id": "s-1",
        }
        await chat.reconnected(state_sync(stacks=STACKS, cards=CARDS))
        again = await chat.visitor.receive("canvas_interaction")
        assert (again["id"], again["payload"]) == (first["id"], first["payload"])
        await chat.visitor.send(Ack("done", card_id="c-9"), reply_to=again["id"])
        await chat.until_seen("the note is on the canvas")
        await drawn(chat, "c-9", "s-1", "Note", "buy **milk**", 60)
        await chat.until(lambda now: "c-9" in now.board.cards)
        chat.type("/note\r")
        await chat.until_seen("What shall it say?")
        chat.type("/note too much\r")
        refused = await chat.visitor.receive("canvas_interaction")
        await chat.visitor.send(Error("archived", "The stack is archived."), reply_to=refused["id"])
        await chat.until_seen("The stack is archived.")


async def test_pipe_draws_all_cards_without_chosen_stack() -> None:
    async with in_a_pipe(state_sync(stacks=STACKS, cards=CARDS)) as chat:
        await chat.until_seen("2 cards on the canvas: /cards draws")
        mission = await chat.mission("hello")
        assert chat.conversation.board.current is None
        await chat.answer(mission, "Done.")
        await drawn(chat, "c-3", "s-1", "Map", "of Lund", 20)
        await chat.until_seen("of Lund")
        chat.type("/stack 2\n/cards\n")
        await chat.until_seen("none is left")
        await chat.until_seen("1 card on the stack Work")
        assert "go by train" not in chat.seen
