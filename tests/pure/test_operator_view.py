"""The operator page as text: untrusted text is escaped, and lists are bounded."""

from __future__ import annotations

from collections.abc import Sequence

from bridge.admin.operator_actions import Entry
from bridge.admin.operator_api import page
from bridge.admin.status import Row
from bridge.admin.status import drawn as table
from bridge.auth.people import Person

HOSTILE = "</dd><script>alert(1)</script>\"'\x00\u202e"


def shown(people: Sequence[tuple[Person, Row | None]], audit: Sequence[Entry] = (), matching: int = 1) -> str:
    response = page([(person, row, HOSTILE) for person, row in people], matching, HOSTILE, audit, 1000.0)
    return " ".join((response.text or "").split())


def row(name: str, **change: object) -> Row:
    fields = {"state": "running", "version": "1", "link": None, "detail": "", "clients": 2, "last_seen_at": 940.0}
    spent = {"today_usd": 0.5, "month_usd": 1.25, "total_usd": 3.0, "unpriced": 0}
    return Row(sprite=name, **{**fields, **spent, **change})  # type: ignore[arg-type]


def test_untrusted_text_is_escaped() -> None:
    hostile = row("bob", state=HOSTILE, version=HOSTILE, detail=HOSTILE * 1000)
    entry = Entry(1, 0.0, HOSTILE, HOSTILE, HOSTILE, {HOSTILE: HOSTILE})
    text = shown([(Person("bob", 0, None, None, 1), hostile)], [entry])
    assert "<script" not in text
    assert "\u202e" not in text
    assert "\x00" not in text
    assert len(text) < 20_000


def test_revoked_person_has_no_sprite() -> None:
    text = shown([(Person("bob", 0, None, 5.0, 0), None)])
    assert "revoked" in text
    assert "State" not in text


def test_page_shows_counts_and_spending() -> None:
    text = shown([(Person(name, 0, None, None, 1), row(name)) for name in ("bob", "cyd")], matching=900)
    assert "900 people; those shown spent $1.00 today and $2.50 this month" in text
    assert "the first 2 of 900" in text


def test_estimates_are_shown_apart() -> None:
    estimated = row("bob", estimated_usd=0.125)
    assert "$0.50 today (of which $0.12 is estimated)" in shown([(Person("bob", 0, None, None, 1), estimated)])
    assert "of today's $0.12 is estimated" in table([estimated], 1000.0)
    assert "estimated" not in table([row("bob")], 1000.0)
