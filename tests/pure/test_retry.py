"""Pauses between attempts."""

from __future__ import annotations

from sprite.common.tasks import backoff, jittered


def test_pauses_double_up_to_longest() -> None:
    for attempt, longest in ((0, 1.0), (1, 2.0), (2, 4.0), (3, 5.0), (10_000, 5.0)):
        pauses = [backoff(attempt, 1.0, 5.0) for _ in range(100)]
        assert all(longest / 2 <= pause <= longest for pause in pauses)
        assert len(set(pauses)) > 1


def test_jittered_pause_is_at_least_half() -> None:
    assert all(1.0 <= jittered(2.0) <= 2.0 for _ in range(100))
