"""The person's writes to the canvas: notes, block edits, and their storage and display."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from sprite.agent.tools.blocks import MAX_BLOCKS
from sprite.boot.canvas import CanvasContext
from sprite.errors import PeerError
from sprite.gateway.canvas import PersonsCanvas
from sprite.privacy.private_text import PrivateText
from sprite.protocol.frames import encode
from sprite.protocol.messages import CLIENT_TYPES, MAX_FRAME_BYTES, Ack, Error
from sprite.protocol.shapes import Block, Card, Point, Size
from sprite.workspace.database import CardSaved, WorkspaceDB, open_workspace
from sprite.workspace.feed import Feed
from tests.fake_secrets import TOKENS

TABLE = {"columns": ["fruit", "kg"], "rows": [["apples", 2], ["pears", 3]]}


@dataclass
class Desk:
    """An interaction handler on a real store and feed, which records every frame sent to clients."""

    workspace: WorkspaceDB
    feed: Feed
    canvas: PersonsCanvas
    frames: list[dict[str, Any]] = field(default_factory=list)

    async def take(self, message_id: str = "m-1", **interaction: Any) -> Ack | Error:
        wanted = msgspec.convert(interaction, CLIENT_TYPES["canvas_interaction"])
        answer = await self.canvas.take(wanted, message_id)
        await self.feed.drain()
        return answer

    async def refused(self, **interaction: Any) -> tuple[str, str]:
        with pytest.raises(PeerError) as caught:
            await self.take(**interaction)
        return caught.value.code, str(caught.value)

    async def note(self, content: str = "buy milk", message_id: str = "m-1", **more: Any) -> Card:
        blocks = [{"type": "text", "data": {"content": content}}]
        answer = await self.take(message_id, **{"action": "create_card", "title": "Shopping", "blocks": blocks, **more})
        assert isinstance(answer, Ack)
        return await self.card(answer.card_id)

    async def edit(self, data: dict[str, Any], seen: int, block_id: str = "t", card_id: str = "c") -> Ack | Error:
        return await self.take(action="update_block", card_id=card_id, block_id=block_id, data=data, seen=seen)

    async def card(self, card_id: str | None = "c") -> Card:
        card = await self.workspace.card(card_id or "")
        assert card is not None
        return card

    async def block(self, block_id: str = "t") -> Block:
        return next(block for block in (await self.card()).blocks if block.id == block_id)

    @property
    def updates(self) -> list[dict[str, Any]]:
        return [frame["payload"] for frame in self.frames if frame["type"] == "canvas_update"]


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Desk]:
    private_text = PrivateText()
    async with open_workspace(tmp_path / "workspace.db") as workspace:
        feed = Feed(workspace, await workspace.last_seq(), private_text.others)
        made = Desk(workspace, feed, PersonsCanvas(workspace, feed, private_text, CanvasContext(workspace)))
        feed.subscribe(lambda frame, _seq: made.frames.append(json.loads(frame)))
        async with feed.running(lambda: None):
            yield made


@pytest.fixture
async def drawn(desk: Desk) -> Card:
    """Draw a card owned by the agent."""
    stack_id = await desk.workspace.create_stack("Fruit")
    blocks = [
        Block("t", "table", TABLE),
        Block("x", "text", {"content": "from the agent"}),
        Block("k", "key-value", {"pairs": [{"key": "city", "value": "Lund"}]}),
        Block("h", "heading", {"text": "Fruit", "level": 2}),
    ]
    card = Card("c", stack_id, "Fruit", "table", Point(1, 2), Size(300, 200), blocks, archived=False)
    await desk.workspace.record([], [CardSaved(card)])
    return card


# Notes


async def test_note_becomes_persons_card_for_all_clients(desk: Desk) -> None:
    card = await desk.note()
    (block,) = card.blocks
    assert (card.title, card.card_type, card.archived) == ("Shopping", "notes", False)
    assert (block.type, block.data, block.version, block.by) == ("text", {"content": "buy milk"}, 1, "person")
    (update,) = desk.updates
    assert (update["command"], update["card_id"], update["blocks"][0]["by"]) == ("create_card", card.card_id, "person")
    stacks = [frame["payload"]["name"] for frame in desk.frames if frame["type"] == "stack_update"]
    assert stacks == ["Canvas"], "the stack of a first note is created before it"
    (change,) = await desk.workspace.canvas_changes()
    assert (change.kind, change.card_id) == ("created", card.card_id)


async def test_resent_note_exists_once_after_restart(desk: Desk, tmp_path: Path) -> None:
    card = await desk.note()
    assert await desk.note() == card
    assert len(desk.updates) == 2, "a client that missed the first event gets it now"
    async with open_workspace(tmp_path / "workspace.db") as again:
        feed = Feed(again, await again.last_seq())
        wanted = msgspec.convert(
            {"action": "create_card", "title": "x", "blocks": []}, CLIENT_TYPES["canvas_interaction"]
        )
        answer = await PersonsCanvas(again, feed, PrivateText(), CanvasContext(again)).take(wanted, "m-1")
        assert isinstance(answer, Ack)
        assert answer.card_id == card.card_id
    assert len(await desk.workspace.cards()) == 1
    await desk.note(message_id="m-2")
    assert len(await desk.workspace.cards()) == 2


async def test_note_takes_chosen_stack_and_position(desk: Desk) -> None:
    first = await desk.workspace.create_stack("First")
    await desk.workspace.create_stack("Second")
    place: dict[str, Any] = {"position": {"x": 40, "y": 50}, "size": {"width": 300, "height": 200}}
    card = await desk.note(title="  \n ", stack_id=first, **place)
    assert (card.stack_id, card.title, card.position, card.size) == (first, "Note", Point(40, 50), Size(300, 200))
    long = await desk.note(message_id="m-2", title="word " * 100)
    assert len(long.title) <= 200


@pytest.mark.parametrize(
    ("wrong", "code", "words"),
    [
        ({"blocks": []}, "bad_request", "Write something first"),
        ({"blocks": [{"type": "chart", "data": {}}]}, "bad_request", "unknown type 'chart'"),
        ({"blocks": [{"type": "note", "data": {"text": "x"}}]}, "bad_request", "blocks[0] (note)"),
        ({"blocks": [{"type": "separator", "data": {}}] * (MAX_BLOCKS + 1)}, "too_long", "200 blocks at most"),
        ({"blocks": [{"type": "text", "data": {"content": "x" * 600_000}}]}, "too_long", "are allowed"),
        ({"stack_id": "nope"}, "not_found", "There is no such stack."),
    ],
)
async def test_invalid_note_is_refused_in_words(wrong: dict[str, Any], code: str, words: str, desk: Desk) -> None:
    blocks = [{"type": "text", "data": {"content": "x"}}]
    said = await desk.refused(action="create_card", **{"title": "x", "blocks": blocks, **wrong})
    assert said[0] == code
    assert words in said[1]
    assert await desk.workspace.cards() == []


async def test_note_on_hidden_stack_is_refused(desk: Desk) -> None:
    stack_id = await desk.workspace.create_stack("Old")
    await desk.workspace.change_stack(stack_id, archived=True)
    blocks = [{"type": "text", "data": {"content": "x"}}]
    code, words = await desk.refused(action="create_card", title="x", blocks=blocks, stack_id=stack_id)
    assert (code, "Restore it first" in words) == ("archived", True)


# Edits


@pytest.mark.parametrize(
    ("block_id", "data"),
    [
        ("t", {"columns": ["fruit", "kg"], "rows": [["apples", 5], ["pears", 3]]}),
        ("x", {"content": "from the person"}),
        ("k", {"pairs": [{"key": "city", "value": "Malmö"}, {"key": "zip", "value": 22100}]}),
        ("h", {"text": "Apples", "level": 1}),
    ],
)
async def test_edit_bumps_version_of_its_block_only(
    block_id: str, data: dict[str, Any], desk: Desk, drawn: Card
) -> None:
    answer = await desk.edit(data, 1, block_id)
    assert isinstance(answer, Ack)
    assert answer.card_id == "c"
    edited = await desk.block(block_id)
    assert (edited.data, edited.version, edited.by) == (data, 2, "person")
    after = await desk.card()
    assert [block for block in after.blocks if block.id != block_id] == [b for b in drawn.blocks if b.id != block_id]
    assert (after.title, after.position, after.size) == (drawn.title, drawn.position, drawn.size)
    (update,) = desk.updates
    assert update["command"] == "update_card"
    shown = next(block for block in update["blocks"] if block["id"] == block_id)
    assert (shown["data"], shown["version"], shown["by"]) == (data, 2, "person")
    (change,) = [c for c in await desk.workspace.canvas_changes() if c.card_id]
    assert (change.kind, change.block_id) == ("edited", block_id)


@pytest.mark.usefixtures("drawn")
async def test_stale_edit_is_refused_with_present_block(desk: Desk) -> None:
    await desk.edit({"content": "first"}, 1, "x")
    answer = await desk.edit({"content": "second"}, 1, "x")
    assert isinstance(answer, Error)
    assert (answer.code, answer.block) == ("conflict", Block("x", "text", {"content": "first"}, 2, "person"))
    assert (await desk.block("x")).data == {"content": "first"}
    assert len(desk.updates) == 1
    assert isinstance(await desk.edit({"content": "second"}, 2, "x"), Ack)
    assert (await desk.block("x")).version == 3


@pytest.mark.usefixtures("drawn")
async def test_edit_of_nonexistent_version_is_refused(desk: Desk) -> None:
    assert isinstance(await desk.edit({"content": "new"}, 9, "x"), Error)
    assert (await desk.block("x")).data == {"content": "from the agent"}


@pytest.mark.usefixtures("drawn")
async def test_store_compares_seen_version(desk: Desk) -> None:
    assert await desk.workspace.change_block("c", "x", {"content": "a"}, 1) is not None
    assert await desk.workspace.change_block("c", "x", {"content": "b"}, 1) is None
    assert await desk.workspace.change_block("c", "gone", {"content": "b"}, 1) is None
    assert await desk.workspace.change_block("gone", "x", {"content": "b"}, 1) is None
    assert (await desk.block("x")).data == {"content": "a"}


@pytest.mark.usefixtures("drawn")
async def test_resent_edit_succeeds_without_conflict(desk: Desk) -> None:
    await desk.edit({"content": "mine"}, 1, "x")
    assert isinstance(await desk.edit({"content": "mine"}, 1, "x"), Ack)
    assert (await desk.block("x")).version == 2


@pytest.mark.usefixtures("drawn")
async def test_concurrent_edits_are_all_kept(desk: Desk) -> None:
    async def write(number: int) -> None:
        seen = 1
        while isinstance(answer := await desk.edit({"content": f"edit {number}"}, seen, "x"), Error):
            assert answer.block is not None
            seen = answer.block.version

    await asyncio.gather(*(write(number) for number in range(20)))
    assert (await desk.block("x")).version == 21
    assert sorted(update["blocks"][1]["version"] for update in desk.updates) == list(range(2, 22))


@pytest.mark.parametrize(
    ("block_id", "data", "words"),
    [
        ("x", {"columns": ["a"], "rows": []}, "the block (text)"),
        ("t", {"columns": ["a"], "rows": [[1, 2]]}, "a row has 2 cells, there are 1 columns"),
        ("t", {"columns": ["a"], "rows": [[{}]]}, "the block (table)"),
        ("t", {"columns": ["a"], "rows": [[2**60]]}, "write others as text"),
        ("k", {"pairs": [{"value": 1}]}, "the block (key-value)"),
        ("h", {"text": "x", "level": 9}, "the block (heading)"),
        ("x", {"content": "x" * 600_000}, "are allowed"),
    ],
)
@pytest.mark.usefixtures("drawn")
async def test_data_invalid_for_block_type_is_refused(
    block_id: str, data: dict[str, Any], words: str, desk: Desk
) -> None:
    before = await desk.card()
    said = await desk.refused(action="update_block", card_id="c", block_id=block_id, data=data, seen=1)
    assert words in said[1]
    assert await desk.card() == before


@pytest.mark.usefixtures("drawn")
async def test_missing_or_archived_block_is_not_edited(desk: Desk) -> None:
    edit = {"action": "update_block", "data": {"content": "x"}, "seen": 1}
    assert (await desk.refused(card_id="nope", block_id="x", **edit))[0] == "not_found"
    assert (await desk.refused(card_id="c", block_id="nope", **edit))[0] == "not_found"
    await desk.take(action="archive_card", card_id="c")
    code, words = await desk.refused(card_id="c", block_id="x", **edit)
    assert (code, "Restore it first" in words) == ("archived", True)


# Private text


@pytest.mark.usefixtures("drawn")
async def test_private_text_and_secrets_are_redacted(desk: Desk, tmp_path: Path) -> None:
    secret = TOKENS["github-classic"](random.Random(1))  # noqa: S311
    card = await desk.note(f"plans <private>leaving the company in May</private> and {secret}", title=f"Key {secret}")
    assert card.blocks[0].data["content"].startswith("plans [private] and [redacted:")
    rows = [["apples", f"<private>of aunt Ottilie</private> {secret}"], ["pears", 3]]
    await desk.edit({"columns": ["fruit", "kg"], "rows": rows}, 1)
    everything = json.dumps(desk.frames) + "".join(
        path.read_bytes().decode("latin-1") for path in tmp_path.glob("workspace.db*")
    )
    for words in (secret, "leaving the company", "aunt Ottilie"):
        assert words not in everything


@pytest.mark.usefixtures("drawn")
async def test_former_private_text_is_redacted_from_agent_output(desk: Desk) -> None:
    await desk.note("<private>leaving the company in May</private>")
    card = await desk.card()
    card.blocks = [Block("x", "text", {"content": "So you are leaving the company in May."})]
    desk.feed.publish(None, [CardSaved(card, {"x": 1})])
    await desk.feed.drain()
    assert "leaving the company" not in str((await desk.block("x")).data)


async def test_private_word_leaves_fields_of_blocks(desk: Desk) -> None:
    card = await desk.note("say <private>content</private>")
    desk.feed.publish(None, [CardSaved(card, {card.blocks[0].id: 1})])
    (block,) = (await desk.note("My content", message_id="m-2")).blocks
    assert block.data == {"content": "My [private]"}
    assert (await desk.card(card.card_id)).blocks[0].data == {"content": "say [private]"}


async def test_agents_private_tag_keeps_cells_beside_edit(desk: Desk) -> None:
    table = {"columns": ["tag", "what"], "rows": [["<private>", "begins"], ["</private>", "ends"]]}
    stack_id = await desk.workspace.create_stack("Help")
    card = Card("c", stack_id, "Tags", "table", None, None, [Block("t", "table", table)], archived=False)
    await desk.workspace.record([], [CardSaved(card)])
    rows = [["<private>", "starts"], ["</private>", "ends"]]
    await desk.edit({"columns": ["tag", "what"], "rows": rows}, 1)
    assert (await desk.block()).data["rows"] == rows


# Sizes


async def test_largest_accepted_card_fits_frame(desk: Desk) -> None:
    await desk.note("x" * 500_000)
    assert all(len(json.dumps(frame)) < MAX_FRAME_BYTES for frame in desk.frames)
    stored = await desk.workspace.cards()
    assert len(encode(Ack("done"))) < len(msgspec.json.encode(stored)) < MAX_FRAME_BYTES
