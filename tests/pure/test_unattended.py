"""Limits of unattended work, counted from the person's last message."""

from __future__ import annotations

import pytest
from claude_agent_sdk import AssistantMessage, StreamEvent

from sprite.agent.background import MOST_TURNS, Unattended
from sprite.agent.translate import CallCosts
from sprite.common.failures import Action
from sprite.common.prices import cost_usd
from sprite.protocol.events import Failed

MODEL = "claude-haiku-5-5"


def test_own_turns_beyond_bound_pause() -> None:
    unattended = Unattended(60.0)
    assert [unattended.may_begin() for _ in range(MOST_TURNS + 2)] == [True] * MOST_TURNS + [False] * 2
    assert unattended.paused is not None
    assert unattended.paused.by == "turns"
    assert unattended.heard()
    assert unattended.may_begin()


def test_message_between_turns_resets_bound() -> None:
    unattended = Unattended(60.0)
    for _ in range(3 * MOST_TURNS):
        unattended.heard()
        assert unattended.may_begin()


def test_own_cost_pauses_once() -> None:
    unattended = Unattended(60.0)
    assert [unattended.paid(0.4) for _ in range(4)] == [False, False, True, False]
    assert not unattended.may_begin()
    unattended.heard()
    assert not unattended.paid(0.4)


def test_awake_bound_counts_from_last_message() -> None:
    now = 1000.0
    unattended = Unattended(3600.0, clock=lambda: now)
    for now in (1500.0, 2000.0):
        unattended.may_begin()
        assert (unattended.held_until, unattended.turn_seconds) == (4600.0, 4600.0 - now)
    now = 4590.0
    assert unattended.turn_seconds == 300.0
    unattended.heard()
    assert unattended.held_until == 4590.0 + 3600.0


@pytest.mark.parametrize(("action", "by"), [("raise_limit", "budget"), ("settings", "month")])
def test_used_up_budget_pauses_by_its_period(action: Action, by: str) -> None:
    unattended = Unattended(60.0)
    assert not unattended.ended(Failed("m1", "overloaded", "Later.", retryable=True, action="retry"))
    assert unattended.paused is None
    assert unattended.ended(Failed("m1", "budget_used_up", "No money.", retryable=False, action=action))
    paused = unattended.paused
    assert paused is not None
    assert (paused.by, paused.why) == (by, "No money.")


def stream(**event: object) -> StreamEvent:
    return StreamEvent(uuid="u", session_id="s", event=event)


def test_streamed_call_is_counted_as_it_grows() -> None:
    costs = CallCosts()
    begun = {"model": MODEL, "usage": {"input_tokens": 1000, "output_tokens": 1}}
    taken = [
        costs.take(stream(type="message_start", message=begun)),
        costs.take(stream(type="message_delta", usage={"output_tokens": 500})),
        costs.take(stream(type="message_delta", usage={"output_tokens": 700})),
    ]
    assert all(usd > 0 for usd in taken)
    assert sum(taken) == pytest.approx(cost_usd(MODEL, {"input_tokens": 1000, "output_tokens": 700}))


def test_subagents_message_is_counted_once() -> None:
    costs = CallCosts()
    usage = {"input_tokens": 1000, "output_tokens": 10}
    said = AssistantMessage([], MODEL, parent_tool_use_id="t1", usage=usage, message_id="m1")
    assert [costs.take(said), costs.take(said)] == [cost_usd(MODEL, usage), 0.0]
    assert costs.take(AssistantMessage([], MODEL, usage=usage, message_id="m2")) == 0.0
