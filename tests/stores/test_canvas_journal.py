"""The person's canvas changes are journaled until the agent is told, and survive the agent's own changes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sprite.protocol.shapes import Block, Card, Point, Size
from sprite.workspace.database import CardSaved, WorkspaceDB, open_workspace


@pytest.fixture
async def workspace(tmp_path: Path) -> AsyncIterator[WorkspaceDB]:
    async with open_workspace(tmp_path / "workspace.db") as opened:
        yield opened


def note(block_id: str, content: str, version: int = 1, by: Any = "agent") -> Block:
    return Block(block_id, "note", {"content": content}, version, by)


async def draw(workspace: WorkspaceDB, *blocks: Block, card_id: str = "c") -> Card:
    card = Card(card_id, await workspace.stack_for(None), "Shopping", "notes", None, None, list(blocks), archived=False)
    await workspace.record([], [CardSaved(card)])
    return card


async def save(workspace: WorkspaceDB, blocks: list[Block], base: dict[str, int]) -> list[Block]:
    """Return the card's blocks after the agent saved these blocks, based on those versions."""
    card = await workspace.card("c")
    assert card is not None
    card.blocks = blocks
    await workspace.record([], [CardSaved(card, base)])
    saved = await workspace.card("c")
    assert saved is not None
    return saved.blocks


async def kinds(workspace: WorkspaceDB) -> list[str]:
    return [change.kind for change in await workspace.canvas_changes()]


# The journal


async def test_agent_drawing_is_not_journaled(workspace: WorkspaceDB) -> None:
    await draw(workspace, note("a", "A"))
    assert await workspace.canvas_changes() == []


async def test_change_of_each_kind_records_its_target(workspace: WorkspaceDB) -> None:
    card = await draw(workspace)
    stack_id = await workspace.create_stack("Trip")
    await workspace.change_stack(stack_id, name="Lund")
    await workspace.change_stack(stack_id, archived=True)
    await workspace.move_card(card.card_id, Point(1, 2), Size(30, 40))
    await workspace.archive_card(card.card_id, archived=True)
    noted = [(c.kind, c.stack_id, c.card_id, c.was) for c in await workspace.canvas_changes()]
    assert noted == [
        ("created", stack_id, None, ""),
        ("renamed", stack_id, None, "Trip"),
        ("archived", stack_id, None, ""),
        ("moved", None, "c", ""),
        ("resized", None, "c", ""),
        ("archived", None, "c", ""),
    ]


async def test_change_without_effect_is_not_journaled(workspace: WorkspaceDB) -> None:
    await draw(workspace)
    stack_id = (await workspace.stacks())[0].stack_id
    await workspace.move_card("c", Point(1, 2), None)
    (moved,) = await workspace.canvas_changes()
    await workspace.move_card("c", Point(1, 2), None)
    await workspace.archive_card("c", archived=False)
    await workspace.change_stack(stack_id, name="Canvas", archived=False)
    assert await workspace.canvas_changes() == [moved]
    assert not await workspace.move_card("gone", Point(1, 2), None)
    assert not await workspace.archive_card("gone", archived=True)
    assert not await workspace.change_stack("gone", name="x")
    assert await workspace.canvas_changes() == [moved]


async def test_repeated_moves_merge_and_restore_replaces_archive(workspace: WorkspaceDB) -> None:
    await draw(workspace)
    stack_id = await workspace.create_stack("A")
    for number in range(40):
        await workspace.move_card("c", Point(number, 0), None)
        await workspace.archive_card("c", archived=number % 2 == 0)
        await workspace.change_stack(stack_id, name=f"name {number}")
    assert await kinds(workspace) == ["created", "moved", "restored", "renamed"]
    assert (await workspace.canvas_changes())[-1].was == "A", "the name that the agent knows"


async def test_reported_changes_are_removed_later_ones_stay(workspace: WorkspaceDB, tmp_path: Path) -> None:
    await draw(workspace)
    await workspace.move_card("c", Point(1, 0), None)
    (told,) = await workspace.canvas_changes()
    await workspace.move_card("c", Point(2, 0), None)
    await workspace.canvas_changes_told(told.id)
    (left,) = await workspace.canvas_changes()
    assert left.id > told.id
    assert await workspace.canvas_changes(left.id) == []
    await workspace.canvas_changes_told(left.id)
    async with open_workspace(tmp_path / "workspace.db") as again:
        await again.move_card("c", Point(3, 0), None)
        (later,) = await again.canvas_changes()
    assert later.id > left.id, "numbers are unique"


async def test_forget_removes_names_and_cards_from_journal(workspace: WorkspaceDB) -> None:
    await draw(workspace)
    await workspace.change_stack((await workspace.stacks())[0].stack_id, name="Ann's divorce")
    await workspace.change_stack((await workspace.stacks())[0].stack_id, name="Papers")
    await workspace.canvas_changes_told((await workspace.canvas_changes())[-1].id)
    await workspace.change_stack((await workspace.stacks())[0].stack_id, name="Other papers")
    await workspace.move_card("c", Point(1, 0), None)
    texts = [replace(each, text="…") for each in await workspace.texts() if each.text == "Papers"]
    await workspace.forget([], ["c"], None, texts)
    (left,) = await workspace.canvas_changes()
    assert (left.kind, left.was) == ("renamed", "…")


# Concurrent changes


async def test_block_changed_concurrently_by_person_stays_theirs(workspace: WorkspaceDB) -> None:
    await draw(workspace, note("a", "A"), note("b", "mine", 2, "person"))
    blocks = await save(workspace, [note("a", "new", 2), note("b", "stale", 2)], {"a": 1, "b": 1})
    assert blocks == [note("a", "new", 2), note("b", "mine", 2, "person")]


async def test_removed_block_returns_if_person_changed_it(workspace: WorkspaceDB) -> None:
    await draw(workspace, note("a", "A"), note("b", "mine", 2, "person"), note("c", "C"))
    blocks = await save(workspace, [note("a", "A"), note("c", "C"), note("d", "D")], {"a": 1, "b": 1, "c": 1})
    assert [block.id for block in blocks] == ["a", "b", "c", "d"]


async def test_block_seen_by_agent_can_be_changed(workspace: WorkspaceDB) -> None:
    await draw(workspace, note("a", "mine", 2, "person"), note("b", "mine too", 5, "person"))
    assert await save(workspace, [note("a", "new", 3)], {"a": 2, "b": 5}) == [note("a", "new", 3)]
