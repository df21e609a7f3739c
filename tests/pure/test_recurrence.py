"""Due times in natural notation, and recurrence on the wall clock of a time zone."""

from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from sprite.common.due_times import due_words, parse_due, repeat_words, span_words
from sprite.common.recurrence import first_after, known_zone, local, missed, moment, next_after, parse_rule, rule_of
from sprite.errors import PeerError

BERLIN = "Europe/Berlin"
SECOND_MONDAY = "FREQ=MONTHLY;BYDAY=MO;BYSETPOS=2"


def at(text: str, tz: str = BERLIN) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(tz)).timestamp()


def walls(rule: str, first: str, count: int, tz: str = BERLIN) -> list[str]:
    """Return the first occurrences of a rule in local time."""
    found: list[str] = []
    after = at(first, tz) - 1
    while len(found) < count and (then := next_after(rule, at(first, tz), tz, after)) is not None:
        found.append(f"{local(then, tz):%Y-%m-%d %H:%M}")
        after = then
    return found


NOW = at("2026-11-22 12:00")


@pytest.mark.parametrize(
    ("text", "wall"),
    [
        ("2026-12-01", "2026-12-01 09:00"),
        ("2026-12-01T08:30", "2026-12-01 08:30"),
        ("2026-12-01 at 8:30", "2026-12-01 08:30"),
        ("2026-12-01  08:30:30", "2026-12-01 08:30"),
        ("2026-12-01T08:30Z", "2026-12-01 09:30"),
        ("2026-12-01T08:30+05:30", "2026-12-01 04:00"),
        ("tomorrow", "2026-11-23 09:00"),
        ("tomorrow at 8:15", "2026-11-23 08:15"),
        ("today 18:00", "2026-11-22 18:00"),
        ("18:00", "2026-11-22 18:00"),
        ("11:00", "2026-11-23 11:00"),
        ("in 20 minutes", "2026-11-22 12:20"),
        ("in 2 days", "2026-11-24 12:00"),
        ("2027-03-28 02:30", "2027-03-28 03:30"),
    ],
)
def test_due_time_is_parsed_in_common_notations(text: str, wall: str) -> None:
    assert f"{local(parse_due(text, BERLIN, NOW), BERLIN):%Y-%m-%d %H:%M}" == wall


@pytest.mark.parametrize(
    "text",
    ["", "soon", "2026-02-30", "2026-13-01", "2026-12-01 25:00", "9999-12-31", "in 99999 weeks", "٢٠٢٦-12-01", "-1"],
)
def test_text_without_time_is_refused(text: str) -> None:
    with pytest.raises(PeerError) as refused:
        parse_due(text, BERLIN, NOW)
    assert refused.value.code == "bad_due"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0, 1e18])
def test_invalid_number_is_refused(value: float) -> None:
    with pytest.raises(PeerError):
        parse_due(value, "UTC", NOW)


@pytest.mark.parametrize(
    "name", ["", "Mars/Olympus", "../../etc/passwd", "/etc/localtime", "localtime", "CET\0", "x" * 999]
)
def test_unknown_zone_is_refused(name: str) -> None:
    with pytest.raises(PeerError) as refused:
        known_zone(name)
    assert refused.value.code == "unknown_zone"


def test_repeat_keeps_wall_clock_across_dst() -> None:
    found = walls("FREQ=DAILY", "2027-03-27 08:00", 3)
    assert found == ["2027-03-27 08:00", "2027-03-28 08:00", "2027-03-29 08:00"]
    assert at("2027-03-28 08:00") - at("2027-03-27 08:00") == 23 * 3600


def test_skipped_hour_fires_later_that_day_only() -> None:
    found = walls("FREQ=DAILY", "2027-03-27 02:30", 3)
    assert found == ["2027-03-27 02:30", "2027-03-28 03:30", "2027-03-29 02:30"]


def test_repeated_hour_fires_once() -> None:
    found = walls("FREQ=DAILY", "2026-10-24 02:30", 3)
    assert found == ["2026-10-24 02:30", "2026-10-25 02:30", "2026-10-26 02:30"]


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ("FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR", ["2026-12-01 09:00", "2026-12-02 09:00", "2026-12-03 09:00"]),
        ("freq=weekly; interval=2; byday=tu", ["2026-12-01 09:00", "2026-12-15 09:00", "2026-12-29 09:00"]),
        ("RRULE:FREQ=MONTHLY;BYDAY=-1FR", ["2026-12-25 09:00", "2027-01-29 09:00", "2027-02-26 09:00"]),
        ("FREQ=MONTHLY;BYMONTHDAY=31", ["2026-12-31 09:00", "2027-01-31 09:00", "2027-03-31 09:00"]),
        ("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=29", ["2028-02-29 09:00", "2032-02-29 09:00", "2036-02-29 09:00"]),
        ("FREQ=DAILY;COUNT=2", ["2026-12-01 09:00", "2026-12-02 09:00"]),
        ("FREQ=DAILY;UNTIL=20261202", ["2026-12-01 09:00", "2026-12-02 09:00"]),
        ("FREQ=DAILY;UNTIL=20261202T075959Z", ["2026-12-01 09:00"]),
        ("FREQ=HOURLY;INTERVAL=36", ["2026-12-01 09:00", "2026-12-02 21:00", "2026-12-04 09:00"]),
        ("FREQ=HOURLY;BYHOUR=9,17;BYDAY=WE", ["2026-12-02 09:00", "2026-12-02 17:00", "2026-12-09 09:00"]),
        ("FREQ=HOURLY;BYMINUTE=0,30", ["2026-12-01 09:00", "2026-12-01 09:30", "2026-12-01 10:00"]),
        ("FREQ=MINUTELY;INTERVAL=45", ["2026-12-01 09:00", "2026-12-01 09:45", "2026-12-01 10:30"]),
        ("FREQ=MONTHLY;BYDAY=MO,TU,WE,TH,FR;BYSETPOS=-1", ["2026-12-31 09:00", "2027-01-29 09:00", "2027-02-26 09:00"]),
    ],
)
def test_repeat_fires_on_its_days(rule: str, expected: list[str]) -> None:
    assert walls(rule, "2026-12-01 09:00", 3) == expected


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        ("FREQ=SECONDLY", "bad_repeat"),
        ("FREQ=MINUTELY", "too_often"),
        ("FREQ=MINUTELY;INTERVAL=4", "too_often"),
        ("FREQ=HOURLY;BYMINUTE=0,3", "too_often"),
        ("FREQ=DAILY;BYHOUR=9;BYMINUTE=0,4", "too_often"),
        ("FREQ=DAILY;BYHOUR=0,23;BYMINUTE=0,57", "too_often"),
        ("FREQ=DAILY;COUNT=100000000", "bad_repeat"),
        ("FREQ=DAILY;COUNT=2;UNTIL=20270101", "bad_repeat"),
        ("FREQ=DAILY;INTERVAL=0", "bad_repeat"),
        ("FREQ=DAILY;INTERVAL=-1", "bad_repeat"),
        ("FREQ=DAILY;BYSECOND=1,2,3", "bad_repeat"),
        ("FREQ=YEARLY;BYWEEKNO=20", "bad_repeat"),
        ("FREQ=YEARLY;BYDAY=60MO", "bad_repeat"),
        ("FREQ=DAILY;BYSETPOS=2", "bad_repeat"),
        ("FREQ=DAILY;FREQ=DAILY", "bad_repeat"),
        ("FREQ=DAILY;BYHOUR=²", "bad_repeat"),
        ("every day", "bad_repeat"),
        ("", "bad_repeat"),
        ("FREQ=DAILY;BYHOUR=" + "1," * 100_000, "bad_repeat"),
    ],
)
def test_invalid_or_dense_rule_is_refused(rule: str, code: str) -> None:
    with pytest.raises(PeerError) as refused:
        parse_rule(rule)
    assert refused.value.code == code


@pytest.mark.parametrize(
    "rule",
    [
        "FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=DAILY;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=DAILY;INTERVAL=7;BYDAY=TH",
        "FREQ=MONTHLY;BYDAY=MO;BYSETPOS=7",
        "FREQ=MONTHLY;INTERVAL=12;BYMONTH=3",
        "FREQ=HOURLY;BYMONTH=4;BYMONTHDAY=31",
        "FREQ=MINUTELY;INTERVAL=7;BYMONTH=2;BYMONTHDAY=30",
        "FREQ=MINUTELY;INTERVAL=720;BYHOUR=5",
        "FREQ=DAILY;UNTIL=20200101",
    ],
)
def test_rule_without_occurrence_has_no_next(rule: str) -> None:
    """The search ends quickly."""
    # dateutil alone would take minutes for some of these.
    assert next_after(rule, at("2026-12-01 09:00"), BERLIN, at("2026-12-01 09:00")) is None


def test_next_occurrence_after_century_is_found_fast() -> None:
    rule, first = "FREQ=MINUTELY;INTERVAL=5", at("2026-12-01 09:00")
    then = at("2126-12-01 09:02")
    assert next_after(rule, first, BERLIN, then) == at("2126-12-01 09:05")
    assert missed(rule, first, BERLIN, first, first + 3600) == 12
    assert missed(rule, first, BERLIN, first, then, most=10_000) == 10_000


def test_repeat_without_start_begins_in_morning() -> None:
    assert first_after("FREQ=WEEKLY;BYDAY=MO", BERLIN, NOW) == at("2026-11-23 09:00")
    assert first_after("FREQ=DAILY;BYHOUR=18", BERLIN, NOW) == at("2026-11-22 18:00")
    assert first_after("FREQ=HOURLY;INTERVAL=2", BERLIN, NOW) == at("2026-11-22 14:00")
    assert first_after("FREQ=YEARLY;BYMONTH=2;BYMONTHDAY=30", BERLIN, NOW) is None


def test_wall_clock_time_maps_to_one_instant() -> None:
    assert moment(datetime(2026, 12, 1, 9), BERLIN) == at("2026-12-01 09:00")  # noqa: DTZ001 - a wall clock


@pytest.mark.parametrize(
    ("typed", "rule", "words"),
    [
        ("day", "FREQ=DAILY", "every day"),
        ("Weekday", "FREQ=WEEKLY;BYDAY=MO,TU,WE,TH,FR", "every weekday"),
        ("FREQ=WEEKLY;BYDAY=MO,FR;BYHOUR=9", "FREQ=WEEKLY;BYDAY=MO,FR;BYHOUR=9", "every Monday and Friday at 09:00"),
        ("rrule: freq=weekly;interval=2;", "FREQ=WEEKLY;INTERVAL=2", "every 2 weeks"),
        ("FREQ=MINUTELY;INTERVAL=30", "FREQ=MINUTELY;INTERVAL=30", "every 30 minutes"),
        ("FREQ=MONTHLY;BYMONTHDAY=1,-1", "FREQ=MONTHLY;BYMONTHDAY=1,-1", "every month on day 1 from the end and 1"),
        ("FREQ=MONTHLY;BYDAY=-1FR", "FREQ=MONTHLY;BYDAY=-1FR", "every month on the last Friday"),
        ("FREQ=YEARLY;BYMONTH=2;COUNT=1", "FREQ=YEARLY;BYMONTH=2;COUNT=1", "every year in February (1 time)"),
        ("FREQ=DAILY;UNTIL=20261231", "FREQ=DAILY;UNTIL=20261231", "every day until 2026-12-31"),
        (SECOND_MONDAY, SECOND_MONDAY, f"by the rule {SECOND_MONDAY}"),
    ],
)
def test_repeat_in_words_round_trips(typed: str, rule: str, words: str) -> None:
    assert rule_of(typed) == rule
    assert repeat_words(rule) == words


@pytest.mark.parametrize("typed", ["", "sometimes", "every", "FREQ=MINUTELY", "FREQ=BURN"])
def test_implausible_repeat_is_refused(typed: str) -> None:
    with pytest.raises(PeerError):
        rule_of(typed)


def test_due_time_is_shown_in_persons_zone() -> None:
    due = at("2026-12-01 09:00")
    assert due_words(due, "FREQ=WEEKLY;BYDAY=TU", BERLIN) == "Tue 2026-12-01 09:00 Europe/Berlin, then every Tuesday"
    assert due_words(due, None, "UTC") == "Tue 2026-12-01 08:00 UTC"
    assert due_words(None, None, None) == ""
    assert [span_words(seconds) for seconds in (5, 60, 7300, 90_000)] == [
        *("less than a minute", "1 minute", "2 hours", "1 day"),
    ]
