"""Random inputs for a given time: hypothesis generates them, and minimizes a failing one.

`FUZZ_SECONDS` is the time for all targets together; without it a few inputs run, the same each time. A failure prints
its seed and saves its input below `.hypothesis/fuzz/`; `FUZZ_SEED=<seed> pytest tests/fuzz/test_fuzz_<target>.py`
starts with it.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import HypothesisWarning

from tests.harness import ROOT

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

#: frames, messages, answers, logs.
TARGETS = 4
#: Without FUZZ_SECONDS each target gets one round, the same each time.
SECONDS = float(os.environ.get("FUZZ_SECONDS") or 0) / TARGETS
FINDINGS = ROOT / ".hypothesis/fuzz"
#: Inputs per seed: few, so that a seed is quickly repeated.
ROUND = 50 if SECONDS else 3


@dataclass(slots=True)
class _Campaign:
    """`failing` is the last failing input: at a round's end the smallest one."""

    ends: float
    tried: int = 0
    failing: object = None
    has_failed: bool = False


class Stage(Protocol[T_contra]):
    """Processes under attack; `end` stops them and reports whether they are healthy."""

    async def start(self) -> None: ...

    async def visit(self, visit: T_contra, /) -> None: ...

    async def end(self) -> None: ...


def attack(target: str, visits: st.SearchStrategy[T], stage: Stage[T]) -> None:
    """Run a campaign against processes that live as long as it does."""
    with asyncio.Runner() as runner:
        runner.run(stage.start())
        try:
            campaign(target, visits, lambda visit: runner.run(stage.visit(visit)))
        finally:
            runner.run(stage.end())


def campaign(target: str, inputs: st.SearchStrategy[T], check: Callable[[T], None]) -> None:
    """Call `check` with inputs for at least one round; raise the first failure."""
    chosen = secrets.randbits(32) if SECONDS else 1
    first = seed = int(os.environ.get("FUZZ_SEED") or chosen)
    state = _Campaign(time.monotonic() + SECONDS)

    @settings(
        max_examples=ROUND,
        database=None,
        deadline=None,
        print_blob=False,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(inputs)
    def round_of_inputs(value: T) -> None:
        if SECONDS and state.tried and time.monotonic() > state.ends and not state.has_failed:
            return
        state.tried += 1
        try:
            check(value)
        except Exception:
            state.failing, state.has_failed = value, True
            raise

    while not state.tried or time.monotonic() < state.ends:
        try:
            with warnings.catch_warnings():
                # A failing input may have megabytes.
                warnings.simplefilter("ignore", HypothesisWarning)
                hypothesis.seed(seed)(round_of_inputs)()
        except BaseException as error:
            if state.has_failed:
                error.add_note(_saved(target, seed, state.failing))
            raise
        seed += 1
    print(f"{target}: {state.tried} inputs, seeds {first} to {seed - 1}")  # noqa: T201 - `make soak` shows it


def _saved(target: str, seed: int, failing: object) -> str:
    FINDINGS.mkdir(parents=True, exist_ok=True)
    path = FINDINGS / f"{target}-{seed}.txt"
    path.write_text(f"{failing!r}\n", encoding="utf-8", errors="backslashreplace")
    return f"FUZZ_SEED={seed} begins with the input that failed; the smallest like it is in {path}"
