"""Who gives way when there are too many connections, and how often a machine without descriptors is said."""

from __future__ import annotations

from sprite.common.limits import ConnectionLimiter, room


def test_the_oldest_stranger_gives_way_to_the_next_and_known_ones_to_nobody() -> None:
    arrivals: ConnectionLimiter[str] = ConnectionLimiter(most=10, most_strangers=3)
    assert [arrivals.enter(name) for name in "abc"] == [None] * 3
    arrivals.welcome("b", "x")
    assert arrivals.enter("d") is None
    assert [arrivals.enter(name) for name in "efg"] == ["a", "c", "d"]
    # One that was sent away does not come in by a word that it said before.
    arrivals.welcome("a", "x")
    assert [arrivals.enter(name) for name in "hij"] == ["e", "f", "g"]


def test_a_stranger_who_is_being_answered_gives_way_last() -> None:
    busy = {"a", "c"}
    arrivals: ConnectionLimiter[str] = ConnectionLimiter(10, 3, busy.__contains__)
    assert [arrivals.enter(name) for name in "abcd"] == [None, None, None, "b"]
    busy.add("d")
    assert arrivals.enter("e") == "a"


def test_where_all_are_known_the_next_is_refused_until_one_leaves() -> None:
    arrivals: ConnectionLimiter[str] = ConnectionLimiter(most=3, most_strangers=2)
    for name in "abc":
        assert arrivals.enter(name) is None
        arrivals.welcome(name, "x")
    assert arrivals.enter("d") == "d"
    arrivals.leave("d")
    arrivals.leave("b")
    assert arrivals.enter("e") is None
    # The room is full again, and the last of it is a stranger's.
    assert arrivals.enter("f") == "e"
    assert arrivals.give_way() == "f"
    assert arrivals.give_way() is None


def test_the_connections_of_one_name_give_way_to_each_other_and_to_nobody_else() -> None:
    busy: set[str] = set()
    arrivals: ConnectionLimiter[str] = ConnectionLimiter(10, 3, busy.__contains__, most_each=2)

    def known(one: str, name: str) -> str | None:
        assert arrivals.enter(one) is None
        return arrivals.welcome(one, name)

    assert [known("a", "ada"), known("b", "ada"), known("c", "bob")] == [None, None, None]
    assert known("d", "ada") == "a"
    busy.add("b")
    assert known("e", "ada") == "d"
    busy.add("e")
    assert known("f", "ada") == "f"
    arrivals.leave("f")
    arrivals.leave("e")
    assert known("g", "ada") is None


def test_connections_leave_descriptors_for_everything_else() -> None:
    connections, strangers = room(256)
    assert 0 < strangers < connections <= 256
