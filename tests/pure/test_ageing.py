"""Reminders expire after their day; other lines stay."""

from datetime import UTC, datetime

import pytest

from sprite.memory.sections import without_past_reminders

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC).timestamp()
FILE = """\
# Context

## Active tasks
- 2026-10-01: the move began.

## Reminders
{}
- When the letter comes: scan it.

## Recently finished
- 2026-11-01: sent.
"""


@pytest.mark.parametrize(
    "line",
    [
        "- 2026-11-19: call the bank.",
        "- **2026-11-19**: call the bank.",
        "- 2026-11-12 to 2026-11-18: the fair.",
        "- by 2026-10-31, pay the tax",
        "- Before 2026-11-12: ask for the certificate.",
    ],
)
def test_past_reminder_expires(line: str) -> None:
    content, gone = without_past_reminders(FILE.format(line), NOON)
    assert gone == [line]
    assert content == FILE.replace("{}\n", "")


@pytest.mark.parametrize(
    "line",
    [
        "- 2026-11-20: today.",
        "- 2026-11-21: tomorrow.",
        "- 2026-11-18 to 2026-11-25: the fair.",
        "- Since 2026-10-01, every month: pay the rent.",
        "- Thursday: call.",
        "<!-- pin -->\n- 2026-11-01: the person's own.\n<!-- /pin -->",
    ],
)
def test_future_or_undated_reminder_stays(line: str) -> None:
    text = FILE.format(line)
    assert without_past_reminders(text, NOON) == (text, [])


def test_day_ends_when_over_in_all_zones() -> None:
    text = FILE.format("- 2026-11-19: call.")
    assert without_past_reminders(text, datetime(2026, 11, 20, 11, 59, tzinfo=UTC).timestamp())[1] == []
    assert without_past_reminders(text, NOON)[1] == ["- 2026-11-19: call."]
