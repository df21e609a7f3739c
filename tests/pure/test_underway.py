"""What a newcomer sees of a mission under way."""

from __future__ import annotations

from sprite.protocol.messages import (
    AgentEvent,
    Running,
)
from sprite.underway import MAX_EVENTS, Underway


def after(*events: AgentEvent) -> Running | None:
    underway = Underway()
    for event in events:
        underway.take(event)
    return underway.shown()


STARTED = AgentEvent("m", "started")


def test_nothing_is_shown_while_nothing_runs() -> None:
    assert after() is None
    assert after(AgentEvent(None, "text_delta", text="by itself")) is None


def test_deltas_grow_until_their_whole_text_replaces_them() -> None:
    growing = (STARTED, AgentEvent("m", "text_delta", text="Hel"), AgentEvent("m", "text_delta", text="lo"))
    assert after(*growing) == Running("m", [STARTED], "Hello")
    whole = AgentEvent("m", "text", text="Hello.")
    assert after(*growing, whole) == Running("m", [STARTED, whole], "")


def test_its_end_takes_it_away_and_the_next_begins_afresh() -> None:
    for end in ("complete", "interrupted", "error"):
        assert after(STARTED, AgentEvent("m", end)) is None
    tool = AgentEvent("m", "tool_use", name="Bash")
    assert after(STARTED, tool, AgentEvent("n", "started")) == Running("n", [AgentEvent("n", "started")], "")


def test_events_of_another_mission_are_not_mixed_in() -> None:
    assert after(STARTED, AgentEvent("old", "text", text="late")) == Running("m", [STARTED], "")


def test_of_very_many_events_the_newest_are_kept() -> None:
    tools = [AgentEvent("m", "tool_use", name=str(number)) for number in range(2 * MAX_EVENTS)]
    running = after(STARTED, *tools)
    assert running is not None
    assert running.events == tools[-MAX_EVENTS:]
