"""Cost of the rules at each tool call, attempts of a disobedient model, and false stops.

All calls pass the real PreToolUse hook. Its cost with rules is beside its cost without, from the same run.
"""

from __future__ import annotations

import asyncio
import logging
import statistics
import tempfile
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, cast

from claude_agent_sdk import HookContext, HookMatcher
from claude_agent_sdk.types import HookInput

from benchmarks.history import load, shipped
from benchmarks.report import below, line
from sprite.agent.options import guarding
from sprite.agent.permissions import Call
from sprite.config import Settings
from sprite.rules.check import Book, Facts
from sprite.rules.condition import parse
from sprite.sandbox.guard import Guard
from tests.harmless_calls import RULES, harmless_calls
from tests.rule_attempts import attempts

ROUNDS = 5
#: A Tuesday: one rule is about weekends.
NOW = datetime(2026, 12, 1, 12, 0)  # noqa: DTZ001 - the person's own wall clock
WANTED_MS = 0.1
Calls = Sequence[tuple[str, dict[str, Any]]]


def book(rules: Sequence[str]) -> Book:
    """The rules, ready to check calls."""
    return Book(list(enumerate(map(parse, rules))))


def hook_of(rules: Book, folder: Path) -> HookMatcher:
    """The product's hook with these rules; a call that one is about is denied."""

    async def refusal(call: Call, _agent: str | None) -> str | None:
        if not len(rules):
            return None
        found = rules.find(Facts(call.tool, call.input, str(call.cwd), NOW))
        return f"by rule {found[0].rule}" if found else None

    async def begins() -> None:
        pass

    return guarding(Guard(Settings(folder), sandboxed=True), begins, refusal, lambda _call: False)


async def run(hook: HookMatcher, calls: Calls, folder: Path) -> tuple[list[float], int]:
    """Milliseconds of each call, and how many were stopped."""
    spent, stopped = [], 0
    (callback,) = hook.hooks
    for number, (tool, given) in enumerate(calls):
        event = cast("HookInput", {"tool_name": tool, "tool_input": given, "cwd": str(folder)})
        started = time.thread_time()
        output = await callback(event, f"t{number}", cast("HookContext", {}))
        spent.append((time.thread_time() - started) * 1000)
        stopped += bool(output)
    return spent, stopped


def recorded() -> Calls:
    """Every call of the shipped histories."""
    return [(call.name, call.input) for path in shipped() for turn in load(path).turns for call in turn.tools]


async def main() -> None:
    """Prints every figure."""
    logging.disable()
    made = attempts()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        none, many = book([]), book([f"stop when {condition}" for condition, _ in made])
        calls = [*recorded(), *harmless_calls()]
        plain, full = [], []
        for _ in range(ROUNDS):
            plain += (await run(hook_of(none, folder), calls, folder))[0]
            full += (await run(hook_of(many, folder), calls, folder))[0]
        added = statistics.median(full) - statistics.median(plain)
        line("hook without rules, median", f"{statistics.median(plain):.3f} ms", "-", ok=True)
        line(f"  added by {len(many)} rules, median", f"{added:.3f} ms", f"<= {WANTED_MS} ms", ok=added <= WANTED_MS)
        alone = []
        for tool, given in calls:
            started = time.thread_time()
            many.find(Facts(tool, given, str(folder), NOW))
            alone.append((time.thread_time() - started) * 1000)
        below(f"check against {len(many)} rules", alone, WANTED_MS)
        share = sum(each <= WANTED_MS for each in alone) / len(alone)
        line("  calls within 0.1 ms / slowest", f"{share:.1%} / {max(alone):.2f} ms", "-", ok=True)
        tried = [call for _, calls in made for call in calls]
        _, held = await run(hook_of(many, folder), tried, folder)
        line("attempts stopped by 200 rules", f"{held:,} of {len(tried):,}", "all", ok=held == len(tried))
        _, false = await run(hook_of(book(RULES), folder), harmless_calls(), folder)
        line("false stops by 20 rules in everyday calls", f"{false} of {len(harmless_calls()):,}", "0", ok=not false)


if __name__ == "__main__":
    asyncio.run(main())
