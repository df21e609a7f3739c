"""What a sprite may say as it likes: what the bridge keeps of it is bounded, and shows no operator more than words."""

from __future__ import annotations

from bridge.admin.status import Row, drawn
from bridge.hub.link import Pace
from bridge.hub.room import WorkUnderWay
from sprite.protocol.events import Complete, Started, WholeText
from sprite.protocol.messages import SessionUpdate
from sprite.protocol.shapes import SessionState, SlowWork
from sprite.protocol.slow_work import oldest, slow, slow_words
from tests.chat_stand_in import state_sync


def test_missions_without_end_are_not_all_kept() -> None:
    work = WorkUnderWay()
    for number in range(10_000):
        work.heard(Started(f"m{number}"))
        work.heard(WholeText("x" * 100_000 + str(number), ""))
    assert work.goes_on
    assert sum(map(len, work.turns)) < 10_000
    work.state(state_sync())
    assert not work.goes_on


def test_a_turn_keeps_a_room_awake_until_it_ends() -> None:
    work = WorkUnderWay()
    work.heard(WholeText("m1", "Hello"))
    assert work.goes_on
    work.heard(Complete("m1", text="", usage=None, cost_usd=None, duration_ms=0))
    assert not work.goes_on


def test_a_sprite_that_comes_again_has_no_new_burst() -> None:
    """The link to it hands one pace to all its connections."""
    pace = Pace()
    assert pace.take(1024) == 0
    # Far more than the burst: what is filled up again meanwhile, on a busy machine, does not count.
    for _ in range(256):
        pace.take(2**20)
    assert pace.take(1024) > 0


def test_the_operators_table_shows_what_a_sprite_says_as_words_of_one_line() -> None:
    steering = "1.0\x1b[2J\x9b\r\n\u202eforged"
    row = Row("ada", "running", steering, "ready", steering, 1, None, 0.0, 0.0, 0.0, 0)
    table = drawn([row], now=0.0)
    assert len(table.splitlines()) == 2
    assert all(line.isprintable() for line in table.splitlines())


def test_slow_work_of_a_sprite_is_bounded() -> None:
    work = WorkUnderWay()
    endless = [SlowWork("queue", -1e300), *[SlowWork("model_call", 1e300)] * 10_000]
    work.heard(SessionUpdate(SessionState("s", 1.0, 1, None, 0, slow=endless)))
    assert len(work.open_work()) < 100
    (queue,) = slow_words(oldest(slow(work.open_work(), 0.0)), 0.0)
    assert len(queue) < 500
