"""Print one line for each figure of a benchmark: its spread, its baseline from the same run, and the goal."""

from __future__ import annotations

import statistics
from collections.abc import Sequence


def spread(samples: Sequence[float]) -> str:
    """Median with the 10th and 90th percentile, in the samples' own unit."""
    deciles = statistics.quantiles(samples, n=10)
    return f"{statistics.median(samples):.2f} [{deciles[0]:.2f} .. {deciles[-1]:.2f}]"


def line(name: str, value: str, wanted: str, *, ok: bool) -> None:
    """One figure."""
    print(f"{'ok  ' if ok else 'MISS'}  {name:<58} {value:<44} wanted {wanted}")


def ratio(name: str, samples: Sequence[float], baseline: Sequence[float], wanted: float, unit: str = "ms") -> None:
    """A figure as a ratio of medians to a baseline measured in the same run."""
    found = statistics.median(samples) / statistics.median(baseline)
    value = f"{found:.2f} x  ({spread(samples)} / {spread(baseline)} {unit})"
    line(name, value, f"<= {wanted:.2f} x", ok=found <= wanted)


def below(name: str, samples: Sequence[float], wanted: float, unit: str = "ms") -> None:
    """A figure whose median has its own limit."""
    line(name, f"{spread(samples)} {unit}", f"< {wanted:g} {unit}", ok=statistics.median(samples) < wanted)
