"""A turn that its person asked not to be remembered is in the log, and in nothing that memory makes of it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sprite.boot.prompt import BootPrompt
from sprite.capture.turn_buffer import TurnBuffer
from sprite.config import Settings
from sprite.forget.plan import Target
from sprite.log.curations import CURATED, OFF_RECORD
from sprite.search.view import logged_turn
from sprite.workspace.database import open_workspace
from tests.memory_stores import Stores, find, forgetter_of, names, open_stores

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
        await stores.turn(SAID, "The merger: understood.", off_record=True),
        await stores.turn("I like cake."),
    ]


def test_a_turns_own_words_say_whether_it_is() -> None:
    said = TurnBuffer("s", "user", "m", SAID).observation("complete")
    assert (said.off_record, said.user_message) == (True, SAID)
    assert not TurnBuffer("s", "user", "m", "The merger is on Friday.").observation("crashed").off_record
    noticed = TurnBuffer("s", "task")
    noticed.add_notice(SAID)
    assert not noticed.observation("complete").off_record


async def test_the_log_has_it_and_says_so(stores: Stores) -> None:
    _, hidden, _ = await three_turns(stores)
    turn = await stores.transcript.observation(hidden)
    assert turn is not None
    assert (turn.user_message, turn.processed) == (SAID, OFF_RECORD)
    shown = logged_turn(turn)
    assert (shown.off_record, shown.processed, shown.quarantined) == (True, False, False)


async def test_it_never_waits_to_be_curated_and_the_others_are(stores: Stores) -> None:
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


async def test_no_first_prompt_has_it(stores: Stores) -> None:
    await three_turns(stores)
    prompt = await BootPrompt(stores.files, stores.memory, stores.transcript, stores.folder / "skills").text()
    assert "I like tea." in prompt
    assert "merger" not in prompt


@pytest.mark.parametrize(
    "query", ["merger", "Halvorsen", "halvorson", "understood", "since:2000-01-01", "type:TURN merger", "around:1 x"]
)
async def test_no_search_finds_it_also_not_beside_what_it_finds(stores: Stores, query: str) -> None:
    _, hidden, _ = await three_turns(stores)
    found = await find(stores, query)
    assert f"T{hidden}" not in names(found)
    assert "merger" not in str(found.hits)
    assert "T1" in names(await find(stores, "around:1"))
    assert (await find(stores, f"around:{hidden}")).hits == []


async def test_forgetting_finds_it_and_a_new_index_does_not(stores: Stores) -> None:
    _, hidden, last = await three_turns(stores)
    settings = Settings(stores.folder.parents[1])
    async with open_workspace(settings.workspace_db) as seen:
        forgetter = forgetter_of(settings, stores, seen)
        gone = await forgetter.forget(Target(text="Halvorsen"), sure=False)
    assert gone.turns == [hidden]
    turn = await stores.transcript.observation(hidden)
    assert turn is not None
    assert "Halvorsen" not in turn.user_message
    assert turn.processed == OFF_RECORD
    assert names(await find(stores, "merger")) == []
    assert names(await find(stores, "cake")) == [f"T{last}"]
