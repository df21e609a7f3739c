"""The fake model handles plain reminders."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.fake_model.agent import answer
from bridge.fake_model.request import Body, Message, understand
from bridge.fake_model.words import reminder
from sprite.memory.decision import Action
from sprite.protocol.tools import LIST_CALL, SCHEDULE_CALL
from sprite.scheduler.scheduler import mission_text


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("Remind me tomorrow at 9 to call Bo.", {"content": "call Bo", "due": "tomorrow 9:00"}),
        ("please remind me to pay on 2026-12-01 at 09:30", {"content": "pay", "due": "2026-12-01 09:30"}),
        ("remind me in 20 minutes to rest", {"content": "rest", "due": "in 20 minutes"}),
        (
            "Every weekday at 8 draw my cards",
            {"content": "draw my cards", "rrule": "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR;BYHOUR=8;BYMINUTE=0"},
        ),
        ("Remind me to water the ficus.", None),
        ("Every day I run", None),
        ("I was reminded of it", None),
    ],
)
def test_timed_reminder_is_scheduled(text: str, asked: dict[str, str] | None) -> None:
    assert reminder(text) == asked


def replied(text: str) -> dict[str, Any]:
    tools = [{"name": name, "input_schema": {}} for name in (LIST_CALL, SCHEDULE_CALL, "Bash")]
    (block,) = answer(understand(Body("m", [Message("user", text)], tools=tools)))
    return block


def due(content: str) -> dict[str, Any]:
    return replied(mission_text(Action(7, 0.0, content, 0, "open", None, due=60.0), 60.0, 60.0))


@pytest.mark.parametrize(
    "content", ["stretch", "remind me tomorrow at 9 to rest", "I prefer tea", "ask what is for lunch"]
)
def test_due_reminder_is_announced_without_rescheduling(content: str) -> None:
    assert due(content)["text"] == f"It is time: {content}"


def test_due_task_is_executed() -> None:
    assert due("run `date`")["input"]["command"] == "date"
    assert due("draw my open actions")["name"] == LIST_CALL


def test_reminder_about_work_stays_reminder() -> None:
    called = replied("remind me in 5 minutes to run `date`")
    assert (called["name"], called["input"]) == (SCHEDULE_CALL, {"content": "run `date`", "due": "in 5 minutes"})
