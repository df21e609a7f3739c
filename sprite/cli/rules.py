"""`rules list|test`: the person's rules about tool calls. Only a client of the person's can change them."""

from __future__ import annotations

import argparse
from datetime import datetime
from pathlib import Path

import msgspec

from sprite.cli.output import day_and_time, say, say_json
from sprite.config import Settings
from sprite.memory.rule_rows import all_rules
from sprite.owner import open_stores
from sprite.protocol.framing import one_line
from sprite.protocol.shapes import RuleExample, RuleRow
from sprite.rules.check import Facts, Rule, UncertainError
from sprite.rules.condition import Condition

#: The statuses of rules that are shown and tested.
_HELD = frozenset({"active", "offered"})


async def list_rules(settings: Settings, arguments: argparse.Namespace) -> int:
    """Print the rules, oldest first."""
    found = await _rules(settings)
    shown = [row for row, _ in found if arguments.all or row.status in _HELD]
    if arguments.json:
        say_json(msgspec.to_builtins(shown))
        return 0
    for row in shown:
        say(f"{row.id:<6} {row.status:<9} {one_line(row.words)}")
        used = f"used {row.uses} times, last {day_and_time(row.used_at)}" if row.used_at else "never used"
        told = f"of {row.checked:,} past calls {row.stops:,}" if row.status == "offered" else used
        quote = f'; "{one_line(row.quote)}" (turn {row.turn})' if row.quote else ""
        say(f"       {one_line(row.reason)} ({told}{quote}){f' {row.doubt}' if row.doubt else ''}")
    if not shown:
        say('There are no rules. Say "make it a rule that ..." to Sprite, or write one in the page (Settings, Rules).')
    return 0


async def test(settings: Settings, arguments: argparse.Namespace) -> int:
    """Print which rules a command would meet, or run all examples; 1 if one does not meet its rule."""
    rules = [(row, Rule(condition)) for row, condition in await _rules(settings) if row.status in _HELD]
    if arguments.call is not None:
        now = Facts("Bash", {"command": arguments.call}, str(Path.cwd()), datetime.now().astimezone())
        calls = [(row, rule, now, arguments.call) for row, rule in rules]
    else:
        calls = [(row, rule, _past(each), _text(each)) for row, rule in rules for each in row.examples]
    results = [(row, text, _verdict(row, rule, facts)) for row, rule, facts, text in calls]
    if arguments.call is not None:
        results = [result for result in results if result[2] is not None]
    if arguments.json:
        say_json([{"rule": row.id, "call": text, "verdict": verdict} for row, text, verdict in results])
    for row, text, verdict in results if not arguments.json else ():
        what = one_line(row.words if arguments.call is not None else text)
        say(f"{verdict or 'MISS':<5} rule {row.id} ({row.status}): {what}")
    if not results and not arguments.json:
        say("No rule is about this call." if arguments.call is not None else "No rule has an example in the log.")
    return 0 if all(verdict for _, _, verdict in results) else 1


def _past(each: RuleExample) -> Facts:
    return Facts(each.tool, each.input, None, datetime.fromtimestamp(each.at).astimezone(), is_past=True)


def _text(each: RuleExample) -> str:
    return f"turn {each.turn}, {each.tool}: {next(iter(each.input.values()), '')[:100]}"


def _verdict(row: RuleRow, rule: Rule, facts: Facts) -> str | None:
    """Return what a rule does about a call, or None."""
    try:
        return row.action if rule.is_about(facts) else None
    except UncertainError:
        return "ask"


async def _rules(settings: Settings) -> list[tuple[RuleRow, Condition]]:
    async with open_stores(settings) as stores:
        return await all_rules(stores.memory)
