"""Outgoing frames for a slow reader: order, limits, and live events behind a replay."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sprite.protocol.outbox import Outbox

NO_LIMIT = 10**9


def never() -> None:
    raise AssertionError("this reader is not to be cut off")


def taken(outbox: Outbox) -> list[bytes]:
    return list(iter(outbox.take, None))


def test_frames_leave_in_order_after_sending() -> None:
    outbox = Outbox(NO_LIMIT, never)
    for frame in (b"one", b"two", b"three"):
        outbox.put(frame)
    assert outbox.take() == b"one"
    assert outbox.size == 11
    outbox.sent()
    assert outbox.size == 8
    assert outbox.take_all() == b"twothree"
    assert outbox.is_empty
    assert outbox.size == 8
    outbox.sent()
    assert outbox.size == 0
    assert outbox.take() is None
    assert outbox.take_all() == b""


def test_frame_queued_during_send_still_waits() -> None:
    outbox = Outbox(NO_LIMIT, never)
    outbox.put(b"one")
    outbox.take()
    outbox.put(b"three")
    outbox.sent()
    assert outbox.size == 5


def test_reader_above_limit_is_disconnected_and_queue_cleared() -> None:
    cuts: list[str] = []
    outbox = Outbox(10, lambda: cuts.append("cut"))
    outbox.put(b"12345")
    outbox.take()
    outbox.hold()
    outbox.event(b"67890", 1)
    assert cuts == []
    outbox.event(b"!", 2)
    assert cuts == ["cut"]
    assert outbox.is_cut
    assert outbox.is_finished
    outbox.sent()
    outbox.event(b"x" * 11, 3)
    outbox.put(b"x" * 11)
    outbox.release(0)
    assert (outbox.size, taken(outbox), cuts) == (0, [], ["cut"])


def test_held_events_follow_replay_without_duplicates() -> None:
    outbox = Outbox(NO_LIMIT, never)
    outbox.event(b"live before", 1)
    outbox.hold()
    outbox.event(b"replayed", 4)
    outbox.event(b"not durable", None)
    outbox.event(b"new", 5)
    outbox.put(b"the replay")
    outbox.release(4)
    outbox.event(b"live after", 6)
    assert taken(outbox) == [b"live before", b"the replay", b"not durable", b"new", b"live after"]


def test_late_replayed_event_is_dropped_until_new_sequence() -> None:
    outbox = Outbox(NO_LIMIT, never)
    outbox.hold()
    outbox.release(4)
    outbox.event(b"replayed", 4)
    outbox.event(b"new", 5)
    outbox.begin_anew()
    outbox.event(b"of another sequence", 1)
    outbox.event(b"not durable", None)
    assert taken(outbox) == [b"new", b"of another sequence", b"not durable"]


def test_volatile_events_yield_to_newer_state() -> None:
    outbox = Outbox(NO_LIMIT, never)
    outbox.drop_transient()
    outbox.hold()
    outbox.event(b"typing", None)
    outbox.event(b"said", 7)
    outbox.drop_transient()
    assert outbox.size == 4
    outbox.release(0)
    assert taken(outbox) == [b"said"]


def test_held_events_are_discarded_when_obsolete() -> None:
    """They are discarded when holding ends unused or begins again."""
    outbox = Outbox(NO_LIMIT, never)
    outbox.hold()
    outbox.event(b"first attempt", 1)
    outbox.hold()
    assert outbox.size == 0
    outbox.event(b"second attempt", 2)
    outbox.discard()
    outbox.event(b"live", 3)
    assert (outbox.size, taken(outbox)) == (4, [b"live"])


def test_replay_pauses_above_limit_of_sendable_frames() -> None:
    """Held events alone never pause it."""
    outbox = Outbox(NO_LIMIT, never)
    outbox.hold()
    outbox.event(b"x" * 100, 1)
    assert not outbox.has_backlog(50)
    outbox.put(b"y")
    assert outbox.has_backlog(50)
    assert not outbox.has_backlog(101)
    outbox.take()
    assert outbox.has_backlog(50)
    outbox.sent()
    assert not outbox.has_backlog(50)


def test_queued_frames_are_sent_before_close_later_dropped() -> None:
    outbox = Outbox(NO_LIMIT, never)
    outbox.put(b"goodbye")
    outbox.finish()
    outbox.put(b"too late")
    assert not outbox.is_finished
    assert taken(outbox) == [b"goodbye"]
    assert outbox.is_finished


@given(
    missed=st.integers(0, 8),
    overlap=st.integers(0, 8),
    steps=st.lists(st.sampled_from(["replay", "live", "send"])),
)
def test_live_events_during_replay_arrive_once_in_order(missed: int, overlap: int, steps: list[str]) -> None:
    """`overlap` is the number of live events that the replay contains too."""
    outbox, heard = Outbox(NO_LIMIT, never), list[bytes]()
    replay = [*range(1, missed + 1)]
    live = [*range(max(1, missed + 1 - overlap), missed + 6)]
    outbox.hold()
    for step in [*steps, *("replay" for _ in replay), "release", *("live" for _ in live), *("send" for _ in range(99))]:
        if step == "replay" and replay:
            outbox.put(b"%d" % replay.pop(0))
        elif step == "release":
            outbox.release(missed)
        elif step == "live" and live:
            outbox.event(b"%d" % live[0], live.pop(0))
        elif step == "send" and (frame := outbox.take()) is not None:
            heard.append(frame)
            outbox.sent()
    assert heard == [b"%d" % seq for seq in range(1, missed + 6)]
    assert outbox.size == 0


@given(
    st.integers(0, 60),
    st.lists(st.tuples(st.sampled_from("put event hold discard take sent".split()), st.integers(0, 9))),
)
def test_queue_never_exceeds_limit(limit: int, steps: list[tuple[str, int]]) -> None:
    outbox = Outbox(limit, lambda: None)
    for step, size in steps:
        match step:
            case "put":
                outbox.put(b"x" * size)
            case "event":
                outbox.event(b"x" * size, size or None)
            case "hold":
                outbox.hold()
            case "discard":
                outbox.discard()
            case "take":
                outbox.take()
            case _:
                outbox.sent()
        assert 0 <= outbox.size <= limit
    outbox.discard()
    taken(outbox)
    outbox.sent()
    assert outbox.size == 0
