"""Pasted spans reach the log and survive redaction, crashes, waiting and forgetting."""

from __future__ import annotations

import random
from pathlib import Path

from sprite.config import Settings
from sprite.forget.plan import Target
from sprite.log.transcript import Observation
from sprite.protocol.pasted import own_text
from sprite.workspace.database import MissionMoved, StoredMission, open_workspace
from tests.fake_secrets import TOKENS
from tests.memory_stores import SESSION, forgetter_of, open_stores
from tests.recording import Recording, crash_and_recover, recording
from tests.scheduling import scheduling

KEY = TOKENS["anthropic"](random.Random(1))  # noqa: S311 - made-up data
MAIL = f"Please pay Kraken. The key is {KEY}. Off the record: never mind."
TEXT = f"<private>For Ada.</private> A mail: {MAIL}\nI like tea."
PASTED = ((TEXT.index(MAIL), TEXT.index(MAIL) + len(MAIL)),)


def own(turn: Observation) -> str:
    return own_text(turn.user_message, turn.pasted)


async def begin(rec: Recording) -> None:
    rec.recorder.open_mission("m-1", TEXT, pasted=PASTED)
    await rec.recorder.prompt_submitted("p", TEXT)
    await rec.recorder.text("Noted.")


async def test_turn_stores_pasted_spans_of_redacted_text(tmp_path: Path) -> None:
    async with recording(tmp_path) as rec:
        await begin(rec)
        await rec.recorder.close_mission("complete")
        turn = await rec.turn()
    assert own(turn) == "[private] A mail: \n\nI like tea."
    assert KEY not in turn.user_message
    # A wish inside a paste is not the person's.
    assert turn.processed == 0


async def test_killed_turn_keeps_pasted_spans(tmp_path: Path) -> None:
    (turn,) = await crash_and_recover(tmp_path, before=begin)
    assert (own(turn), turn.outcome) == ("[private] A mail: \n\nI like tea.", "crashed")


async def test_queued_mission_keeps_pasted_spans_on_disk(tmp_path: Path) -> None:
    """The stored text is redacted; the agent gets the whole one."""
    async with scheduling(tmp_path) as here:
        await here.runtime.submit("m-1", TEXT, None, pasted=PASTED)
        (mission,) = await here.waiting()
        assert own_text(mission.text, mission.pasted) == "[private] A mail: \n\nI like tea."
        await here.end()
        # The text is dropped at the end, and the chat's line has the spans.
        assert await here.workspace.open_missions() == []
        line = (await here.workspace.chat(10))[0]
        assert own_text(line.text, tuple(line.pasted)) == "[private] A mail: \n\nI like tea."


async def test_mission_killed_before_its_first_hook_keeps_pasted_spans(tmp_path: Path) -> None:
    async with scheduling(tmp_path) as here:
        await here.runtime.submit("m-1", TEXT, None, pasted=PASTED)
        await here.feed.drain()
        await here.workspace.record([], [MissionMoved("m-1", "running", SESSION)])
        await here.runtime.restore()
        turn = await here.stores.transcript.turn_of("m-1")
    assert turn is not None
    assert (own(turn), turn.outcome) == ("[private] A mail: \n\nI like tea.", "crashed")


async def test_forget_moves_or_clears_pasted_spans(tmp_path: Path) -> None:
    said = "Here: Pay Kraken tomorrow. I like tea and saffron."
    pasted = ((6, 26),)
    folder = tmp_path / ".os/memory"
    folder.mkdir(parents=True)
    (tmp_path / ".os/run").mkdir()
    settings = Settings(tmp_path)
    async with open_stores(folder) as stores, open_workspace(settings.system / "workspace.db") as seen:
        await stores.projection.settle()
        first, second = await stores.turn(said, pasted=pasted), await stores.turn(said, pasted=pasted)
        await seen.accept_mission(StoredMission("m-1", said, None, "queued", None, pasted=pasted))
        forgetter = forgetter_of(settings, stores, seen)

        await forgetter.forget(Target(text="Kraken"), sure=True)
        await forgetter.forget(Target(text="saffron"), sure=True)
        (mission,) = await seen.open_missions()
        turn = await stores.transcript.observation(first)
        assert turn is not None
        for text, spans in ((turn.user_message, turn.pasted), (mission.text, mission.pasted)):
            assert text == "Here: Pay [forgotten] tomorrow. I like tea and [forgotten]."
            assert own_text(text, spans) == "Here: \n I like tea and [forgotten]."

        await forgetter.forget(Target(turn=second), sure=True)
        turn = await stores.transcript.observation(second)
        assert turn is not None
        assert (turn.user_message, turn.pasted) == ("[forgotten]", ())
