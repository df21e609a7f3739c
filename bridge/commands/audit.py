"""`python -m bridge audit`: show the operators' actions."""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime

import msgspec

from bridge.admin import control
from bridge.admin.audit import MOST_SHOWN, AuditLog, told
from bridge.commands.reach import add_data, bridge_or_acts, say
from bridge.config import Settings
from bridge.errors import OperatorError
from bridge.providers.provider import printable

_BROKEN = 1


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument(
        "--since",
        metavar="TIME",
        help="a day or a time, such as 2026-11-22 or 2026-11-22T08:30 (UTC where none is said)",
    )
    parser.add_argument("--json", action="store_true", help="for programs")
    add_data(parser)
    parser.set_defaults(work=_audit)


async def _audit(settings: Settings, arguments: argparse.Namespace) -> int:
    since = _seconds(arguments.since)
    async with bridge_or_acts(settings) as (session, acts):
        if session is not None:
            found = msgspec.convert(await control.ask(session, "GET", f"/audit?since={since!r}"), AuditLog)
        else:
            found = await acts.audit.since(since)
    if arguments.json:
        say(msgspec.json.encode(found.entries).decode())
    else:
        for entry in found.entries:
            at = datetime.fromtimestamp(entry.at, UTC).strftime("%Y-%m-%d %H:%M:%S")
            say(f"{at}  {printable(entry.actor):<12}  {printable(told(entry))}")
        if not found.entries:
            say("Nothing yet." if arguments.since is None else "Nothing since then.")
        elif len(found.entries) == MOST_SHOWN:
            say(f"These are the newest {MOST_SHOWN}; --since shows from a time on.")
    if found.broken_at is not None:
        sys.stderr.write(f"bridge: line {found.broken_at} is not as it was written: somebody changed the audit log.\n")
        return _BROKEN
    return 0


def _seconds(text: str | None) -> float:
    """Return the time in Unix seconds; 0 for None."""
    if text is None:
        return 0.0
    try:
        at = datetime.fromisoformat(text)
        return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        raise OperatorError(f"--since must be a day or a time such as 2026-11-22T08:30, not {text!r}.") from None
