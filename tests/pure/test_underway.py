"""A running mission as a newly connected client sees it."""

from __future__ import annotations

from sprite.protocol.events import (
    AnyAgentEvent,
    Complete,
    Failed,
    Interrupted,
    Started,
    TextDelta,
    ToolResult,
    ToolUse,
    WholeText,
)
from sprite.protocol.messages import Running
from sprite.protocol.shapes import SlowWork, oldest, slow, slow_words
from sprite.workspace.feed import MAX_EVENTS, Underway


def after(*events: AnyAgentEvent) -> Running | None:
    underway = Underway()
    for event in events:
        underway.take(event)
    return underway.shown()


STARTED = Started("m")


def test_idle_agent_shows_nothing() -> None:
    assert after() is None
    assert after(TextDelta(None, "by itself")) is None


def test_deltas_accumulate_until_full_text_replaces_them() -> None:
    growing = (STARTED, TextDelta("m", "Hel"), TextDelta("m", "lo"))
    assert after(*growing) == Running("m", [STARTED], "Hello")
    whole = WholeText("m", "Hello.")
    assert after(*growing, whole) == Running("m", [STARTED, whole], "")


def test_mission_end_clears_state_for_next() -> None:
    for end in (Complete("m", "Done.", None, None, 5), Interrupted("m"), Failed("m", "overloaded", "Busy.", True)):
        assert after(STARTED, end) is None
    tool = ToolUse("m", "t", "Bash", {})
    assert after(STARTED, tool, Started("n")) == Running("n", [Started("n")], "")


def test_events_of_other_mission_are_ignored() -> None:
    assert after(STARTED, WholeText("old", "late")) == Running("m", [STARTED], "")


def test_newest_of_many_events_are_kept() -> None:
    tools = [ToolUse("m", str(number), "Bash", {}) for number in range(2 * MAX_EVENTS)]
    running = after(STARTED, *tools)
    assert running is not None
    assert running.events == tools[-MAX_EVENTS:]


def test_open_work_names_turn_and_model_call() -> None:
    underway = Underway()
    underway.take(STARTED, at=10.0)
    assert underway.open_work() == [SlowWork("turn", 10.0), SlowWork("model_call", 10.0)]
    underway.take(ToolUse("m", "t1", "Bash", {}), at=20.0)
    assert underway.open_work() == [SlowWork("turn", 10.0)]
    underway.take(ToolResult("m", "t1", is_error=False, summary=""), at=30.0)
    assert underway.open_work() == [SlowWork("turn", 10.0), SlowWork("model_call", 30.0)]
    underway.take(Interrupted("m"), at=40.0)
    assert underway.open_work() == []


def test_slow_work_is_oldest_of_each_kind() -> None:
    work = [SlowWork("model_call", 30.0), SlowWork("turn", 20.0), SlowWork("turn", 10.0), SlowWork("queue", 95.0)]
    found = oldest(slow(work, now=100.0))
    assert found == [SlowWork("turn", 10.0), SlowWork("model_call", 30.0)]
    assert slow_words(found, 100.0) == [
        "a turn has been running for 90 s",
        "a call of the model has had no answer for 70 s",
    ]
