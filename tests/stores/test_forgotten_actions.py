"""Forgetting removes an action with its source turn or text: its words, history and rows; other actions stay."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from sprite.search.view import MemoryView
from tests.looks import dump
from tests.memory_stores import Stores, forget_in, open_stores, rebuilt


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    path = tmp_path / ".os/memory"
    path.mkdir(parents=True)
    (tmp_path / ".os/run").mkdir()
    return path


@pytest.fixture
async def stores(folder: Path) -> AsyncIterator[Stores]:
    async with open_stores(folder) as opened:
        yield opened


def holds(folder: Path, word: str) -> list[str]:
    """Return every file that contains the word in its bytes."""
    wanted = word.encode()
    return [path.name for path in folder.rglob("*") if path.is_file() and wanted in path.read_bytes()]


async def eventful(stores: Stores) -> tuple[int, int]:
    """Log a turn with two actions by the agent, changed since, and one by a person; return their numbers."""
    actions = stores.actions
    await stores.turn("Please book the zeppelin for Quimby", "Done.", mission_id="m1")
    made = await actions.add("Book the zeppelin for Quimby", by="agent", due="2099-12-01", mission_id="m1")
    await actions.update(made.id, by="person", content="Book the zeppelin for Quimby, window seat")
    await actions.fired(made.id, due=made.due or 0, mission_id="m2")
    await actions.noted(made.id, "asked Quimby about the zeppelin", status="failed")
    other = await actions.add("Water the ficus", by="person", due="2099-12-01", rrule="FREQ=DAILY")
    await actions.resolve(other.id, "done", by="agent", once=True, note="watered")
    return made.id, other.id


@pytest.mark.parametrize("target", [{"turn": 1}, {"text": "zeppelin"}], ids=str)
async def test_action_is_removed_with_its_source(folder: Path, stores: Stores, target: dict[str, Any]) -> None:
    made, other = await eventful(stores)
    kept = await stores.actions.action(other)
    await forget_in(stores, **target)
    left = await stores.memory.actions()
    assert left == [kept]
    assert all(action.id != made for action in left)
    assert holds(folder.parent, "zeppelin") == []
    assert await stores.reports() == []


async def test_remaining_actions_are_unchanged_by_rebuild(folder: Path) -> None:
    async with open_stores(folder) as stores:
        await eventful(stores)
        await forget_in(stores, turn=1)
    before = dump(folder / "memory.db")
    assert len(before["pending_actions"]) == 1
    assert await rebuilt(folder, without_files=False) == before


async def test_forgotten_learned_action_leaves_no_ambiguous_row(stores: Stores) -> None:
    await stores.learn(
        'ACTION [t] Call Bo about the zeppelin. | "call Bo about the zeppelin"', "Please call Bo about the zeppelin"
    )
    await stores.learn(
        'ACTION [t] Call Bo about the bicycle. | "call Bo about the bicycle"', "Please call Bo about the bicycle"
    )
    await stores.actions.update(1, by="person", priority=5)
    await stores.actions.resolve(1, "dismissed", by="agent", note="the zeppelin is gone")
    await forget_in(stores, learning=1)
    (left,) = await stores.memory.actions()
    assert (left.id, left.content, left.status, left.priority) == (2, "Call Bo about the bicycle.", "open", 0)
    assert holds(stores.folder, "zeppelin") == []
    assert await stores.reports() == []


async def test_persons_action_is_forgotten_only_by_exact_words(stores: Stores) -> None:
    await stores.turn("Please book the zeppelin for Quimby", "Done.", mission_id="m1")
    await stores.actions.add("Book a zeppelin", by="person")
    await forget_in(stores, turn=1)
    assert [action.content for action in await stores.memory.actions()] == ["Book a zeppelin"]
    await forget_in(stores, text="a zeppelin")
    assert await stores.memory.actions() == []


async def test_action_history_uses_text_until_forgotten(stores: Stores) -> None:
    made, _ = await eventful(stores)
    await stores.learn('ACTION [t] Call Bo. | "call Bo"', "Please call Bo")
    (learned,) = [action for action in await stores.memory.actions() if not action.is_made]
    await stores.actions.resolve(learned.id, "dismissed", by="person")
    view = MemoryView(stores.transcript, stores.memory, stores.files)

    async def told() -> list[tuple[Any, Any, Any]]:
        rows = [row.detail for row in await view.curations() if row.kind == "action"]
        return [(row["op"], row.get("content"), row.get("what")) for row in reversed(rows)]

    seat = "Book the zeppelin for Quimby, window seat"
    assert await told() == [
        ("add", seat, None),
        ("update", seat, None),
        ("fired", seat, None),
        ("noted", seat, "asked Quimby about the zeppelin"),
        ("add", "Water the ficus", None),
        ("resolve", "Water the ficus", None),
        ("resolve", "Call Bo.", None),
    ]
    await forget_in(stores, text="zeppelin")
    assert await stores.memory.action(made) is None
    assert "zeppelin" not in str(await view.curations())
