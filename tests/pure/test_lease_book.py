"""What a bridge may act on by its own clock: never longer than the database lets it."""

from __future__ import annotations

from bridge.cluster.leases import LEASE_SECONDS, UNUSED_SECONDS, LeaseBook, since_boot


class Clock:
    """Goes where the test puts it."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_lease_counts_from_before_it_was_asked_for_and_ends_before_the_databases() -> None:
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


def test_an_answer_that_came_too_late_grants_nothing() -> None:
    clock = Clock()
    book = LeaseBook(clock)
    asked_at = book.now()
    clock.now += LEASE_SECONDS
    book.granted("ada", 1, asked_at)
    assert book.epoch("ada") is None
    assert book.take_ended() == ["ada"]
    assert book.take_ended() == []


def test_an_older_answer_does_not_shorten_a_lease() -> None:
    clock = Clock()
    book = LeaseBook(clock)
    book.granted("ada", 1, clock.now + 1)
    book.granted("ada", 1, clock.now)
    clock.now += LEASE_SECONDS
    assert book.epoch("ada") == 1


def test_a_bridge_that_was_stopped_finds_its_leases_ended_before_anything_else() -> None:
    clock = Clock()
    book = LeaseBook(clock)
    book.granted("ada", 1, clock.now)
    book.granted("bob", 4, clock.now)
    clock.now += 20.0
    assert (book.epoch("ada"), book.epoch("bob")) == (None, None)
    assert sorted(book.take_ended()) == ["ada", "bob"]
    assert book.next_end() is None


def test_the_next_end_is_that_of_the_first_lease_and_never_in_the_past() -> None:
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


def test_what_nobody_uses_is_found_after_a_while_and_what_somebody_uses_is_not() -> None:
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


def test_a_user_of_a_lease_that_ended_does_not_count_against_the_next_one() -> None:
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


def test_the_clock_goes_on_while_a_machine_is_suspended() -> None:
    assert since_boot() >= 0
    assert since_boot() <= since_boot()
