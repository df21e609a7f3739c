"""The reader's position in the event stream: resumption, deduplication, and effects of a state snapshot."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sprite.protocol.outbox import Position


def at(epoch: str, last_seq: int) -> Position:
    position = Position()
    position.welcome(epoch, last_seq)
    return position


def test_new_reader_adopts_sequence_of_first_state() -> None:
    assert Position().epoch is None
    position = Position()
    assert not position.welcome("one", 40)
    assert (position.epoch, position.last_seq) == ("one", 40)


@pytest.mark.parametrize(
    ("epoch", "newest", "goes_on", "last_seq"),
    [
        ("one", 45, True, 40),
        ("one", 40, True, 40),
        ("one", 39, False, 39),
        ("two", 45, False, 45),
        ("two", 3, False, 3),
    ],
)
def test_sequence_continues_within_epoch_unless_reset(epoch: str, newest: int, goes_on: bool, last_seq: int) -> None:
    position = at("one", 40)
    assert position.welcome(epoch, newest) is goes_on
    assert (position.epoch, position.last_seq) == (epoch, last_seq)


def test_event_is_new_once_despite_gaps() -> None:
    position = at("one", 4)
    assert [position.advance(seq) for seq in (5, 5, 4, 9, 8, 10)] == [True, False, False, True, False, True]
    assert position.last_seq == 10


def test_state_replacing_replay_only_advances_position() -> None:
    position = at("one", 4)
    assert position.welcome("one", 50)
    position.skip()
    assert position.last_seq == 50
    assert position.advance(51)
    position.skip()
    assert position.last_seq == 51


def test_state_before_welcome_keeps_position() -> None:
    position = Position()
    position.skip()
    assert (position.epoch, position.last_seq) == (None, 0)


@given(st.data())
def test_events_after_disconnects_are_new_exactly_once(data: st.DataObject) -> None:
    """The sender replays from the reader's reported position; some replayed or live events arrive twice."""
    position, heard, newest = at("one", 0), list[int](), 0
    for _ in range(data.draw(st.integers(1, 6), "connections")):
        newest += data.draw(st.integers(0, 8), "events meanwhile")
        resumed_at = position.last_seq
        assert position.welcome("one", newest)
        again = data.draw(st.integers(0, resumed_at), "events again")
        until = data.draw(st.integers(resumed_at, newest), "cut after")
        for seq in range(resumed_at - again + 1, until + 1):
            if position.advance(seq):
                heard.append(seq)
    position.welcome("one", newest)
    heard += [seq for seq in range(position.last_seq + 1, newest + 1) if position.advance(seq)]
    assert heard == [*range(1, newest + 1)]
