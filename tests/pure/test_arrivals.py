"""Connection limits: the order of eviction, and the rate of reports about exhausted descriptors."""

from __future__ import annotations

from sprite.common.limits import ConnectionLimiter, room


def test_oldest_unauthenticated_client_is_evicted_first() -> None:
    """Authenticated clients are not evicted for others."""
    arrivals: ConnectionLimiter[str] = ConnectionLimiter(most=10, most_strangers=3)
    assert [arrivals.enter(name) for name in "abc"] == [None] * 3
    arrivals.welcome("b", "x")
    assert arrivals.enter("d") is None
    assert [arrivals.enter(name) for name in "efg"] == ["a", "c", "d"]
    # An evicted connection is not readmitted by an authentication that it sent before.
    arrivals.welcome("a", "x")
    assert [arrivals.enter(name) for name in "hij"] == ["e", "f", "g"]


def test_unauthenticated_client_being_answered_is_evicted_last() -> None:
    busy = {"a", "c"}
    arrivals: ConnectionLimiter[str] = ConnectionLimiter(10, 3, busy.__contains__)
    assert [arrivals.enter(name) for name in "abcd"] == [None, None, None, "b"]
    busy.add("d")
    assert arrivals.enter("e") == "a"


def test_full_room_refuses_until_authenticated_client_leaves() -> None:
    arrivals: ConnectionLimiter[str] = ConnectionLimiter(most=3, most_strangers=2)
    for name in "abc":
        assert arrivals.enter(name) is None
        arrivals.welcome(name, "x")
    assert arrivals.enter("d") == "d"
    arrivals.leave("d")
    arrivals.leave("b")
    assert arrivals.enter("e") is None
    # The limit is reached again, and the last connection is unauthenticated.
    assert arrivals.enter("f") == "e"
    assert arrivals.give_way() == "f"
    assert arrivals.give_way() is None


def test_connections_of_one_name_evict_each_other_only() -> None:
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


def test_connection_limit_leaves_spare_descriptors() -> None:
    connections, strangers = room(256)
    assert 0 < strangers < connections <= 256
