"""What the offline model takes for a promise to make, and what for talk."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from bridge.offline.promises import schedule_call

#: A Sunday.
NOW = datetime(2026, 11, 22, 15, 0, tzinfo=UTC)
WEEKDAYS = "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR"


@pytest.mark.parametrize(
    ("text", "content", "due", "rrule"),
    [
        ("remind me in 10 minutes to stretch.", "Stretch", NOW.timestamp() + 600, None),
        ("Please remind me in an hour that the cake is in", "The cake is in", NOW.timestamp() + 3600, None),
        ("remind me tomorrow at 9 to call Bo", "Call Bo", "2026-11-23T09:00", None),
        ("Remind me on Tuesday to call Bo", "Call Bo", "2026-11-24", None),
        ("remind me on sunday at 7:30 pm to call Bo", "Call Bo", "2026-11-29T19:30", None),
        ("remind me on 2026-12-01 to pay the rent", "Pay the rent", "2026-12-01", None),
        ("remind me to call the kiln supplier tomorrow", "Call the kiln supplier", "2026-11-23", None),
        ("every weekday at 8 draw my open actions", "Draw my open actions", "2026-11-23T08:00", WEEKDAYS),
        ("Every day remind me to water the ficus!", "Water the ficus", "2026-11-23T09:00", "FREQ=DAILY"),
        ("remind me every monday at 8:15 to sweep", "Sweep", "2026-11-23T08:15", "FREQ=WEEKLY;BYDAY=MO"),
        ("every friday at 12am say hello", "Say hello", "2026-11-27T00:00", "FREQ=WEEKLY;BYDAY=FR"),
    ],
)
def test_a_promise_is_understood(text: str, content: str, due: float | str, rrule: str | None) -> None:
    call = schedule_call(text, NOW)
    assert call is not None
    name, arguments = call
    assert name.endswith("__schedule")
    assert arguments == {"content": content, "due": due} | ({"rrule": rrule} if rrule else {})


@pytest.mark.parametrize(
    "text",
    [
        "remind me of my name",
        "I drink tea every day",
        "I drink tea every day with milk",
        "what did I say about reminders?",
        "remind me on 2026-13-40 to pay",
        "remind me",
        "every " * 5000,
        "remind me to " + "a " * 20000,
    ],
)
def test_talk_is_no_promise(text: str) -> None:
    assert schedule_call(text, NOW) is None
