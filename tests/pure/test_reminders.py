"""The offline model takes plain reminders for what they are."""

from __future__ import annotations

import pytest

from bridge.offline.reminders import reminder


@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("Remind me tomorrow at 9 to call Bo.", {"content": "call Bo", "due": "tomorrow 9:00"}),
        ("please remind me to pay on 2026-12-01 at 09:30", {"content": "pay", "due": "2026-12-01 09:30"}),
        ("remind me in 20 minutes to rest", {"content": "rest", "due": "in 20 minutes"}),
        ("Every weekday at 8 draw my open actions", {"content": "draw my open actions", "rrule": "Every weekday at 8"}),
        ("Remind me to water the ficus.", None),
        ("Every day I run", None),
        ("I was reminded of it", None),
    ],
)
def test_a_reminder_with_a_time_is_scheduled(text: str, asked: dict[str, str] | None) -> None:
    assert reminder(text) == asked
