"""How far a reader has heard: what it asks for after a cut, what is new to it, and where a state takes it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sprite.protocol.outbox import Position


def at(epoch: str, last_seq: int) -> Position:
    position = Position()
    position.welcome(epoch, last_seq)
    return position


def test_a_new_reader_knows_no_sequence_and_a_state_brings_it_to_the_newest_event() -> None:
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
def test_a_sequence_goes_on_in_the_same_epoch_unless_it_was_set_back(
    epoch: str, newest: int, goes_on: bool, last_seq: int
) -> None:
    position = at("one", 40)
    assert position.welcome(epoch, newest) is goes_on
    assert (position.epoch, position.last_seq) == (epoch, last_seq)


def test_each_event_is_new_once_and_gaps_between_numbers_do_not_matter() -> None:
    position = at("one", 4)
    assert [position.advance(seq) for seq in (5, 5, 4, 9, 8, 10)] == [True, False, False, True, False, True]
    assert position.last_seq == 10


def test_a_state_in_the_place_of_a_replay_takes_the_reader_to_the_newest_event_and_never_back() -> None:
    position = at("one", 4)
    assert position.welcome("one", 50)
    position.skip()
    assert position.last_seq == 50
    assert position.advance(51)
    position.skip()
    assert position.last_seq == 51


def test_a_state_before_any_welcome_takes_the_reader_nowhere() -> None:
    position = Position()
    position.skip()
    assert (position.epoch, position.last_seq) == (None, 0)


@given(st.data())
def test_after_any_number_of_cuts_every_event_was_new_exactly_once(data: st.DataObject) -> None:
    """The sender replays from wherever the reader says it is; some of it, or of what is live, comes twice."""
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
