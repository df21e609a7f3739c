"""Due times in the terminal, and detection of its person's time zone."""

from __future__ import annotations

import time
from datetime import datetime, timedelta

import pytest

from bridge.terminal.drawing import due_words, moment_words, own_zone

NOON = datetime.now().astimezone().replace(hour=12, minute=0, second=0, microsecond=0)
NOW = NOON.timestamp()


def at(**later: int) -> float:
    return (NOON + timedelta(**later)).timestamp()


def test_due_time_is_named_in_plain_words() -> None:
    assert moment_words(at(hours=2), NOW) == "today 14:00"
    assert moment_words(at(days=1), NOW) == "tomorrow 12:00"
    assert moment_words(at(days=-1), NOW) == "yesterday 12:00"
    assert moment_words(at(days=3), NOW) == f"{NOON + timedelta(days=3):%a} 12:00"
    assert moment_words(at(days=40), NOW) == f"{NOON + timedelta(days=40):%Y-%m-%d} 12:00"


def test_overdue_time_shows_delay_and_foreign_zone() -> None:
    assert due_words(at(hours=-1), None, NOW) == "overdue since today 11:00"
    assert due_words(at(hours=1), None, NOW) == "today 13:00"
    elsewhere = "Asia/Kathmandu" if time.localtime().tm_gmtoff != 20_700 else "UTC"
    assert f" in {elsewhere})" in due_words(at(hours=1), elsewhere, NOW)
    assert due_words(at(hours=1), "Not/Known", NOW) == "today 13:00"


@pytest.mark.parametrize("moment", [-1e300, 0.0, 1e300])
def test_time_outside_calendar_is_still_shown(moment: float) -> None:
    assert moment_words(moment)
    assert due_words(moment, "Asia/Tokyo")


def test_machine_without_zone_reports_none() -> None:
    assert own_zone("Europe/Berlin") == own_zone(":Europe/Berlin") == "Europe/Berlin"
    for nowhere in ("UTC", "Etc/UTC", "../../etc/passwd", "/etc/localtime", "Not/Known"):
        assert own_zone(nowhere) is None
