"""The lease book: the bridge's local view never outlasts the lease in the database."""

from __future__ import annotations

from bridge.cluster.leases import LEASE_SECONDS, UNUSED_SECONDS, LeaseBook, since_boot


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_lease_runs_from_request_and_ends_early() -> None:
    """It ends before the database's own lease."""
    clock = Clock()
    book = LeaseBook(clock)
    asked_at = book.now()
    clock.now += 2.0
    book.granted("ada", 3, asked_at)
    assert book.epoch("ada") == 3
    clock.now = asked_at + LEASE_SECONDS - 0.5
    assert book.epoch("ada") == 3
    clock.now = asked_at + LEASE_SECONDS - 0.1
    assert book.epoch("ada") is None


def test_late_answer_grants_nothing() -> None:
    clock = Clock()
    book = LeaseBook(clock)
    asked_at = book.now()
    clock.now += LEASE_SECONDS
    book.granted("ada", 1, asked_at)
    assert book.epoch("ada") is None
    assert book.take_ended() == ["ada"]
    assert book.take_ended() == []


def test_older_answer_does_not_shorten_lease() -> None:
    clock = Clock()
    book = LeaseBook(clock)
    book.granted("ada", 1, clock.now + 1)
    book.granted("ada", 1, clock.now)
    clock.now += LEASE_SECONDS
    assert book.epoch("ada") == 1


def test_suspended_bridge_finds_leases_expired() -> None:
    clock = Clock()
    book = LeaseBook(clock)
    book.granted("ada", 1, clock.now)
    book.granted("bob", 4, clock.now)
    clock.now += 20.0
    assert (book.epoch("ada"), book.epoch("bob")) == (None, None)
    assert sorted(book.take_ended()) == ["ada", "bob"]
    assert book.next_end() is None


def test_next_expiry_is_earliest_and_never_past() -> None:
    clock = Clock()
    book = LeaseBook(clock)
    assert book.next_end() is None
    book.granted("ada", 1, clock.now)
    clock.now += 2.0
    book.granted("bob", 1, clock.now)
    first = book.next_end()
    assert first is not None
    assert LEASE_SECONDS - 3 < first < LEASE_SECONDS - 2
    clock.now += 60.0
    assert book.next_end() == 0.0


def test_unused_lease_is_found_after_delay() -> None:
    clock = Clock()
    book = LeaseBook(clock)
    book.granted("ada", 1, clock.now)
    book.granted("bob", 2, clock.now)
    assert book.unused() == {}
    with book.using("bob"), book.using("bob"):
        clock.now += UNUSED_SECONDS
        assert book.unused() == {"ada": 1}
        book.touch("ada")
        assert book.unused() == {}
    assert book.unused() == {}
    clock.now += UNUSED_SECONDS
    assert book.unused() == {"ada": 1, "bob": 2}


def test_user_of_expired_lease_does_not_hold_next() -> None:
    clock = Clock()
    book = LeaseBook(clock)
    book.granted("ada", 1, clock.now)
    first = book.using("ada")
    first.__enter__()
    book.drop("ada")
    book.granted("ada", 2, clock.now)
    with book.using("ada"):
        first.__exit__(None, None, None)
        clock.now += UNUSED_SECONDS
        assert book.unused() == {}


def test_clock_advances_during_suspend() -> None:
    assert since_boot() >= 0
    assert since_boot() <= since_boot()
