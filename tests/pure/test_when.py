"""Time expressions in a question, in the person's zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sprite.memory.query import when_asked

#: A Saturday, shortly after midnight in a zone where it is still Friday in London.
ZONE = timezone(timedelta(hours=2))
NOW = datetime(2026, 11, 21, 0, 30, tzinfo=ZONE)


@pytest.mark.parametrize(
    ("text", "since", "before"),
    [
        ("the visit in March", "2026-03-01", "2026-04-01"),
        ("the visit in December", "2025-12-01", "2026-01-01"),
        ("the visit in March 2024", "2024-03-01", "2024-04-01"),
        ("the visit in 2024", "2024-01-01", "2025-01-01"),
        ("what we did on May 8th, 2023", "2023-05-08", "2023-05-09"),
        ("what we did on 8 May", "2026-05-08", "2026-05-09"),
        ("what we did on 2023-05-08", "2023-05-08", "2023-05-09"),
    ],
)
def test_period_is_recognized(text: str, since: str, before: str) -> None:
    when = when_asked(text, NOW)
    assert when.since is not None
    assert when.before is not None
    start, stop = (datetime.fromtimestamp(moment, ZONE).strftime("%Y-%m-%d") for moment in (when.since, when.before))
    assert (start, stop) == (since, before)


@pytest.mark.parametrize("text", ["may I march with the band?", "31 February", "last week", "in 0000", "tea"])
def test_text_without_period_has_none(text: str) -> None:
    when = when_asked(text, NOW)
    assert (when.since, when.before) == (None, None)


@given(
    st.text() | st.from_regex(r"(in )?\d+ (May|March)? ?\d*", fullmatch=True),
    st.sampled_from([NOW.astimezone(UTC), NOW.replace(tzinfo=None)]),
)
@example("in 0001", NOW.replace(tzinfo=None))
def test_arbitrary_question_raises_no_error(text: str, now: datetime) -> None:
    when = when_asked(text, now)
    assert (when.since is None) == (when.before is None)
