"""Compromised sprite: the bridge bounds its data, and shows it to operators as plain text only."""

from __future__ import annotations

from bridge.admin.status import Row, drawn
from bridge.hub.link import Pace
from bridge.hub.room import WorkUnderWay
from sprite.protocol.events import Complete, Started, WholeText
from sprite.protocol.messages import SessionUpdate
from sprite.protocol.shapes import SessionState, SlowWork, oldest, slow, slow_words
from tests.chat_stand_in import state_sync


def test_endless_missions_are_bounded() -> None:
    work = WorkUnderWay()
    for number in range(10_000):
        work.heard(Started(f"m{number}"))
        work.heard(WholeText("x" * 100_000 + str(number), ""))
    assert work.goes_on
    assert sum(map(len, work.turns)) < 10_000
    work.state(state_sync())
    assert not work.goes_on


def test_work_is_open_until_turn_ends() -> None:
    work = WorkUnderWay()
    work.heard(WholeText("m1", "Hello"))
    assert work.goes_on
    work.heard(Complete("m1", text="", usage=None, cost_usd=None, duration_ms=0))
    assert not work.goes_on


def test_reconnecting_sprite_gets_no_new_burst() -> None:
    """The link passes one rate limit to all its connections."""
    pace = Pace()
    assert pace.take(1024) == 0
    # Far more than the burst: the refill meanwhile, on a busy machine, is negligible.
    for _ in range(256):
        pace.take(2**20)
    assert pace.take(1024) > 0


def test_operator_table_shows_sprite_text_as_one_line() -> None:
    steering = "1.0\x1b[2J\x9b\r\n\u202eforged"
    row = Row("ada", "running", steering, "ready", steering, 1, None, 0.0, 0.0, 0.0, 0)
    table = drawn([row], now=0.0)
    assert len(table.splitlines()) == 2
    assert all(line.isprintable() for line in table.splitlines())


def test_slow_sprite_work_is_bounded() -> None:
    work = WorkUnderWay()
    endless = [SlowWork("queue", -1e300), *[SlowWork("model_call", 1e300)] * 10_000]
    work.heard(SessionUpdate(SessionState("s", 1.0, 1, None, 0, slow=endless)))
    assert len(work.open_work()) < 100
    (queue,) = slow_words(oldest(slow(work.open_work(), 0.0)), 0.0)
    assert len(queue) < 500
