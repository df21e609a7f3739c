"""`rules list|test`: the person's rules about tool calls; `reach list|revoke`: the hosts that the agent may reach."""

from __future__ import annotations

import argparse
from datetime import datetime
from pathlib import Path

from sprite.cli.output import day_and_time, say, show
from sprite.config import Settings
from sprite.errors import OperatorError, WorkspaceLockedError
from sprite.memory.rule_rows import all_rules
from sprite.owner import ask_running, open_stores, owned
from sprite.protocol.framing import one_line
from sprite.protocol.messages import Reach, ReachResult
from sprite.protocol.shapes import RuleRow, counted
from sprite.protocol.tools import telling
from sprite.rules.check import Book, Facts
from sprite.rules.condition import parse
from sprite.workspace.database import read_workspace


async def list_rules(settings: Settings, arguments: argparse.Namespace) -> int:
    """Print the rules, oldest first."""
    shown = await _rules(settings, with_ended=arguments.all)
    lines = []
    for row in shown:
        used = f"used {row.uses} times, last {day_and_time(row.used_at)}" if row.used_at else "never used"
        told = row.past if row.status == "offered" else used
        quote = f'; "{one_line(row.quote)}" (turn {row.turn})' if row.quote else ""
        lines.append(f"{row.id:<6} {row.status:<9} {one_line(row.words)}")
        lines.append(f"       {one_line(row.reason)} ({told}{quote}){f' {row.doubt}' if row.doubt else ''}")
    none = 'There are no rules. Say "make it a rule that ..." to Sprite, or write one in the page (Settings, Rules).'
    return show(arguments, shown, lines or [none])


async def test(settings: Settings, arguments: argparse.Namespace) -> int:
    """Print which rules apply to the given command; without one, test the rules' examples: exit code 1 for a miss."""
    results: list[tuple[RuleRow, str, str]] = []
    for row in await _rules(settings):
        book = Book([(row.id, parse(row.words))])
        calls = [
            (
                f"turn {each.turn}, {each.tool}: {telling(each.input)[:100]}",
                Facts(each.tool, each.input, None, datetime.fromtimestamp(each.at).astimezone()),
            )
            for each in row.examples
        ]
        if arguments.call is not None:
            now = datetime.now().astimezone()
            calls = [(arguments.call, Facts("Bash", {"command": arguments.call}, str(Path.cwd()), now))]
        for text, facts in calls:
            found = book.find(facts)
            if found or arguments.call is None:
                results.append((row, text, "MISS" if not found else "stop" if found[0].stops else "ask"))
    none = "No rule has an example in the log." if arguments.call is None else "No rule is about this call."
    show(
        arguments,
        [{"rule": row.id, "call": text, "verdict": verdict} for row, text, verdict in results],
        [
            f"{verdict:<5} rule {row.id} ({row.status}): {one_line(text if arguments.call is None else row.words)}"
            for row, text, verdict in results
        ]
        or [none],
    )
    return 1 if any(verdict == "MISS" for _, _, verdict in results) else 0


async def _rules(settings: Settings, *, with_ended: bool = False) -> list[RuleRow]:
    async with open_stores(settings) as stores:
        return [row for row in await all_rules(stores.memory) if with_ended or row.status in {"active", "offered"}]


async def list_hosts(settings: Settings, arguments: argparse.Namespace) -> int:
    """Print the hosts that the person always allows, and the hosts of the logged connections."""
    async with read_workspace(settings.workspace_db) as workspace:
        rules, uses = await workspace.hosts.rules(), await workspace.hosts.uses()
    lines = []
    for rule in rules:
        why = f'; asked in "{one_line(rule.message)}"' if rule.message else ""
        lines.append(f"allowed   {rule.host}  (since {day_and_time(rule.at)}{why})")
    for use in uses:
        told = f"{counted(use.connections, 'connection')}, {use.sent:,} bytes sent, {use.received:,} received"
        lines.append(f"{use.decision:<9} {use.host}:{use.port}  ({told}, last {day_and_time(use.last_at)})")
    facts = {"mode": settings.egress, "allowed": rules, "hosts": uses}
    return show(arguments, facts, lines or ["The agent has not connected to any host through Sprite's proxy."])


async def revoke(settings: Settings, arguments: argparse.Namespace) -> int:
    """Revoke the permission for a host that the person allowed. A running sprite closes the host's connections."""
    try:
        async with owned(settings) as own:
            if not await own.workspace.hosts.revoke(arguments.host):
                raise OperatorError(f"{arguments.host} is not a host that you always allow; `reach list` shows them.")
    except WorkspaceLockedError:
        await ask_running(settings, Reach(arguments.host), ReachResult)
    say(f"{arguments.host} is not allowed any more.")
    return 0
