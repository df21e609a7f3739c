"""What the person did to the canvas is kept until the agent was told, and outlasts a change of the agent's."""

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
    """What stands on the card after the agent saved these blocks, made from those versions."""
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


async def test_what_the_agent_draws_is_no_change_of_the_persons(workspace: WorkspaceDB) -> None:
    await draw(workspace, note("a", "A"))
    assert await workspace.canvas_changes() == []


async def test_each_kind_of_change_is_noted_with_what_it_was_done_to(workspace: WorkspaceDB) -> None:
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


async def test_what_changes_nothing_is_not_noted(workspace: WorkspaceDB) -> None:
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


async def test_forty_moves_of_one_card_are_one_change_and_restoring_replaces_archiving(workspace: WorkspaceDB) -> None:
    await draw(workspace)
    stack_id = await workspace.create_stack("A")
    for number in range(40):
        await workspace.move_card("c", Point(number, 0), None)
        await workspace.archive_card("c", archived=number % 2 == 0)
        await workspace.change_stack(stack_id, name=f"name {number}")
    assert await kinds(workspace) == ["created", "moved", "restored", "renamed"]
    assert (await workspace.canvas_changes())[-1].was == "A", "the name that the agent knows"


async def test_what_the_agent_was_told_goes_and_what_came_meanwhile_stays(
    workspace: WorkspaceDB, tmp_path: Path
) -> None:
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
    assert later.id > left.id, "no number comes twice"


async def test_forgetting_takes_the_names_and_the_cards_out_of_the_journal(workspace: WorkspaceDB) -> None:
    await draw(workspace)
    await workspace.change_stack((await workspace.stacks())[0].stack_id, name="Ann's divorce")
    await workspace.change_stack((await workspace.stacks())[0].stack_id, name="Papers")
    await workspace.canvas_changes_told((await workspace.canvas_changes())[-1].id)
    await workspace.change_stack((await workspace.stacks())[0].stack_id, name="Other papers")
    await workspace.move_card("c", Point(1, 0), None)
    texts = [replace(each, text="…") for each in await workspace.texts() if each.text == "Papers"]
    await workspace.forget([], ["c"], texts)
    (left,) = await workspace.canvas_changes()
    assert (left.kind, left.was) == ("renamed", "…")


# Two changes at once


async def test_a_block_that_the_person_changed_meanwhile_stays_theirs(workspace: WorkspaceDB) -> None:
    await draw(workspace, note("a", "A"), note("b", "mine", 2, "person"))
    blocks = await save(workspace, [note("a", "new", 2), note("b", "stale", 2)], {"a": 1, "b": 1})
    assert blocks == [note("a", "new", 2), note("b", "mine", 2, "person")]


async def test_a_block_that_the_agent_removed_comes_back_in_place_if_the_person_changed_it(
    workspace: WorkspaceDB,
) -> None:
    await draw(workspace, note("a", "A"), note("b", "mine", 2, "person"), note("c", "C"))
    blocks = await save(workspace, [note("a", "A"), note("c", "C"), note("d", "D")], {"a": 1, "b": 1, "c": 1})
    assert [block.id for block in blocks] == ["a", "b", "c", "d"]


async def test_a_block_that_the_agent_saw_as_the_person_left_it_can_be_changed_and_removed(
    workspace: WorkspaceDB,
) -> None:
    await draw(workspace, note("a", "mine", 2, "person"), note("b", "mine too", 5, "person"))
    assert await save(workspace, [note("a", "new", 3)], {"a": 2, "b": 5}) == [note("a", "new", 3)]
