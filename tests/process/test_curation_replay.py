"""The curation benchmark on a history of three turns, with the real memory and the real processor."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from benchmarks.answer_slips import seeded
from benchmarks.curation_replay import replay
from benchmarks.curation_score import score
from benchmarks.history import LIVE, Call, History, Question, Turn, Unwanted, Wanted
from benchmarks.recordings import NotRecordedError, Recordings

SEARCH = Call("mcp__sprite__search_memory", {"query": "biscuit"}, LIVE, is_error=False)
FIRST = "our cat is called Biscuit <private>and eats mice</private>"
HISTORY = History(
    about="",
    turns=[
        Turn(1, "s1", datetime(2026, 9, 7, 8, tzinfo=UTC), FIRST, [], "Noted.", "complete", "user", None),
        Turn(2, "s1", datetime(2026, 9, 7, 9, tzinfo=UTC), "who?", [SEARCH], "Biscuit.", "complete", "user", ""),
        Turn(3, "s2", datetime(2026, 9, 8, 8, tzinfo=UTC), "hello", [], None, "error", "user", "overloaded"),
    ],
    wanted=[Wanted("w1", "the cat is Biscuit", ["learnings"], ["cat", "biscuit"])],
    unwanted=[Unwanted("u1", "what was said in private", ["mice"])],
    questions=[Question("What is the cat called?", [1], "biscuit")],
)


async def test_history_is_curated_per_session_from_recordings() -> None:
    answers = {"t1-t2": 'FACT [t1] The cat is called Biscuit. | "our cat is called Biscuit"', "t3-t3": "NONE"}
    run = await replay(HISTORY, Recordings.of_answers(answers), seeded("recorded"))
    counted = score(HISTORY, run)
    assert [served.turns for served in run.served] == ["t1-t2", "t3-t3"]
    assert all(0 < served.beside < served.prompt for served in run.served)
    assert run.usd > 0
    assert counted.missing_anywhere == []
    assert counted.unwanted_learnings == []
    assert (counted.turn_found, counted.answer_found) == (1, 1)


async def test_missing_recording_raises_error() -> None:
    with pytest.raises(NotRecordedError, match="t3-t3"):
        await replay(HISTORY, Recordings.of_answers({"t1-t2": "NONE"}), seeded("recorded"))
