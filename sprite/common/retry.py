"""Delays before the next attempt, spread so that many callers do not retry at once."""

from __future__ import annotations

import random


def jittered(seconds: float) -> float:
    """Return a random part of the seconds, at least half of them ("equal jitter", AWS Architecture Blog, 2015)."""
    return seconds * random.uniform(0.5, 1.0)  # noqa: S311 - spreads callers, keeps no secret


def backoff(attempt: int, first: float, longest: float) -> float:
    """Return the delay after a failed attempt, numbered from 0: doubled each time, limited, jittered."""
    return jittered(min(longest, first * 2 ** min(attempt, 30)))
