"""An off-the-record turn is in the log, and in nothing that memory derives from it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sprite.boot.prompt import BootPrompt
from sprite.capture.turn_buffer import TurnBuffer
from sprite.config import Settings
from sprite.log.curations import CURATED, OFF_RECORD
from sprite.search.view import logged_turn
from tests.memory_stores import SESSION, Stores, find, forget_in, names, open_stores

SAID = "Off the record: the merger with Halvorsen is on Friday."


@pytest.fixture
async def stores(tmp_path: Path) -> AsyncIterator[Stores]:
    settings = Settings(tmp_path)
    settings.memory.mkdir(parents=True)
    settings.run.mkdir()
    async with open_stores(settings.memory) as opened:
        await opened.projection.settle()
        yield opened


async def three_turns(stores: Stores) -> list[int]:
    return [
        await stores.turn("I like tea."),
        await stores.turn(SAID, "The merger: understood.", processed=OFF_RECORD),
        await stores.turn("I like cake."),
    ]


def test_turn_text_marks_it_off_record() -> None:
    said = TurnBuffer("s", "user", "m", SAID).observation("complete")
    assert (said.processed, said.user_message) == (OFF_RECORD, SAID)
    assert not TurnBuffer("s", "user", "m", "The merger is on Friday.").observation("crashed").processed
    noticed = TurnBuffer("s", "task")
    noticed.add_notice(SAID)
    assert not noticed.observation("complete").processed


async def test_log_keeps_off_record_turn_with_mark(stores: Stores) -> None:
    _, hidden, _ = await three_turns(stores)
    turn = await stores.transcript.observation(hidden)
    assert turn is not None
    assert (turn.user_message, turn.processed) == (SAID, OFF_RECORD)
    shown = logged_turn(turn)
    assert (shown.off_record, shown.processed, shown.quarantined) == (True, False, False)


async def test_off_record_turn_never_awaits_curation(stores: Stores) -> None:
    first, hidden, last = await three_turns(stores)
    assert [turn.id for turn in await stores.transcript.waiting(25)] == [first]
    assert await stores.transcript.waiting_count() == 2
    with pytest.raises(ValueError, match="already curated"):
        await stores.batch("FACT [t2]: The merger is on Friday", first, last)
    for turn in (first, last):
        await stores.batch(f"FACT [t{turn}]: The user likes things", turn)
    marks = [turn.processed for turn in await stores.observations()]
    assert marks == [CURATED, OFF_RECORD, CURATED]
    assert [turn.id for turn in await stores.transcript.curated()] == [first, last]
    await stores.projection.settle()
    assert not any("merger" in learning.content for learning in await stores.learnings())
    assert hidden not in {learning.source_observation_id for learning in await stores.learnings()}


async def test_boot_prompt_excludes_off_record_turn(stores: Stores) -> None:
    await three_turns(stores)
    prompt = await BootPrompt(stores.files, stores.memory, stores.transcript).text()
    assert "I like tea." in prompt
    assert "merger" not in prompt


@pytest.mark.parametrize(
    "query",
    [
        "merger",
        "Halvorsen",
        "halvorson",
        "understood",
        "since:2000-01-01",
        "before:2100-01-01 merger",
        f"session:{SESSION}",
        f"session:{SESSION} merger",
        "type:TURN merger",
        "around:1 x",
    ],
)
async def test_search_never_shows_off_record_turn(stores: Stores, query: str) -> None:
    """It is not shown as a neighbour of a hit either."""
    _, hidden, _ = await three_turns(stores)
    found = await find(stores, query)
    assert f"T{hidden}" not in names(found)
    assert "merger" not in str(found.hits)
    assert "T1" in names(await find(stores, "around:1"))
    assert (await find(stores, f"around:{hidden}")).hits == []
    assert not await stores.transcript.mentions(["Halvorsen"], 0.0)
    assert await stores.transcript.mentions(["cake"], 0.0)


async def test_forget_finds_off_record_turn_without_index(stores: Stores) -> None:
    _, hidden, last = await three_turns(stores)
    gone = await forget_in(stores, text="Halvorsen", sure=False)
    assert gone.turns == [hidden]
    turn = await stores.transcript.observation(hidden)
    assert turn is not None
    assert "Halvorsen" not in turn.user_message
    assert turn.processed == OFF_RECORD
    assert names(await find(stores, "merger")) == []
    assert names(await find(stores, "cake")) == [f"T{last}"]


async def test_answer_asked_again_loses_off_record_words(stores: Stores) -> None:
    turn = await stores.turn("The party is in Rosebud Street.")
    await stores.batch("NONE", turn)
    await stores.projection.settle()
    answer = f'FACT [t{turn}] The party is in Rosebud Street | "The party is in Rosebud Street."'
    await stores.extract_again(1, (answer, turn, turn), verify=lambda line: "no" if line.startswith("keep") else "yes")
    rows = await stores.transcript.curations.after(0)
    assert [row.response for row in rows if row.kind == "batch"] == ["NONE", "FACT: [forgotten]"]
    assert "Rosebud" not in str(rows)
