"""The bridge's replay buffer: newest events, undelivered messages, and rate limits."""

from __future__ import annotations

import pytest

from bridge.hub.pending_requests import MAX_BYTES, MAX_MESSAGES, PendingMessage, ResendBuffer
from bridge.hub.room import MAX_BYTES as BUFFERED_BYTES
from bridge.hub.room import MAX_FRAMES, ReplayBuffer
from sprite.common.limits import TokenBucket


def filled(base: int | None, *seqs: int) -> ReplayBuffer:
    buffer = ReplayBuffer()
    buffer.begin(base)
    for seq in seqs:
        buffer.add(seq, f"{seq}".encode())
    return buffer


@pytest.mark.parametrize(
    ("buffer", "after", "expected"),
    [
        (filled(10, 11, 12), 10, [b"11", b"12"]),
        (filled(10, 11, 12), 11, [b"12"]),
        (filled(10, 11, 12), 12, []),
        (filled(10, 11, 12), 9, None),
        (filled(10, 11, 12), 13, None),
        (filled(10), 10, []),
        (filled(10, 12, 15), 13, [b"15"]),
        (filled(None), 0, None),
        (filled(None, 7), 6, [b"7"]),
        (filled(None, 7), 5, None),
    ],
)
def test_replay_is_complete_or_refused(buffer: ReplayBuffer, after: int, expected: list[bytes] | None) -> None:
    assert buffer.after(after) == expected


def test_oldest_events_are_evicted_and_unpromised() -> None:
    buffer = filled(0, *range(1, MAX_FRAMES + 11))
    assert buffer.after(9) is None
    assert buffer.after(10) == [f"{seq}".encode() for seq in range(11, MAX_FRAMES + 11)]
    large = filled(0)
    for seq in range(1, 12):
        large.add(seq, b"x" * (BUFFERED_BYTES // 10))
    assert large.after(0) is None
    replayed = large.after(1)
    assert replayed is not None
    assert len(replayed) == 10


def test_oversized_event_is_dropped_later_ones_kept() -> None:
    buffer = filled(0)
    buffer.add(1, b"x" * (BUFFERED_BYTES + 1))
    assert buffer.after(0) is None
    buffer.add(2, b"2")
    assert buffer.after(1) == [b"2"]


def test_restart_clears_buffer() -> None:
    buffer = filled(10, 11)
    buffer.begin(None)
    assert buffer.after(11) is None
    buffer.add(14, b"14")
    assert buffer.after(13) == [b"14"]


def message(frame: bytes, sender: str = "ada") -> PendingMessage[str]:
    return PendingMessage(frame, sender, "id")


def test_duplicate_id_keeps_place_and_answers_last_sender() -> None:
    messages: ResendBuffer[str] = ResendBuffer()
    assert messages.add("one", message(b"1"))
    assert messages.add("two", message(b"2"))
    assert messages.add("one", message(b"1", "bob"))
    assert messages.frames() == [b"1", b"2"]
    answered = messages.answered("one")
    assert answered is not None
    assert answered.sender == "bob"
    assert (messages.frames(), messages.answered("one")) == ([b"2"], None)


def test_buffer_stays_within_its_capacity() -> None:
    messages: ResendBuffer[str] = ResendBuffer()
    assert all(messages.add(f"{number}", message(b"x")) for number in range(MAX_MESSAGES))
    assert not messages.add("one more", message(b"x"))
    assert messages.add("0", message(b"x"))
    messages.answered("0")
    assert not messages.add("large", message(b"x" * MAX_BYTES))
    assert messages.add("one more", message(b"x"))


def test_bucket_allows_burst_then_reports_wait() -> None:
    now = 0.0
    bucket = TokenBucket(10, 20, clock=lambda: now)
    assert [bucket.take(10), bucket.take(10)] == [0.0, 0.0]
    assert bucket.take(5) == pytest.approx(0.5)
    now = 0.5
    assert bucket.take(0) == 0.0
    now = 100.0
    assert bucket.take(20) == 0.0
    assert bucket.take(1) == pytest.approx(0.1)


def test_bucket_estimates_wait_without_taking() -> None:
    now = 0.0
    bucket = TokenBucket(10, 20, clock=lambda: now)
    assert [bucket.wait(20), bucket.wait(20)] == [0.0, 0.0]
    bucket.take(20)
    assert bucket.wait(5) == pytest.approx(0.5)
    now = 0.25
    assert bucket.wait(5) == pytest.approx(0.25)
    now = 0.5
    assert bucket.wait(5) == 0.0
