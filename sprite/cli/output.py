"""Output of commands: text for people, JSON for programs."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

import msgspec

from sprite.config import Settings
from sprite.protocol.frames import json_schema

#: Terminal control characters except tabs and line breaks: file names and web text may contain them.
_CONTROL = dict.fromkeys([*range(9), *range(11, 32), *range(127, 160)], "\N{REPLACEMENT CHARACTER}")


def say(text: str = "") -> None:
    """Print a line on stdout."""
    sys.stdout.write(f"{_writable(text.translate(_CONTROL))}\n")


def warn(text: str) -> None:
    """Print a line for people on stderr, separate from the output for programs."""
    sys.stderr.write(f"{_writable(text.translate(_CONTROL))}\n")


def _writable(text: str) -> str:
    # Half a surrogate pair, as in an undecodable file name, is escaped, because no stream accepts it.
    return text.encode("utf-8", "backslashreplace").decode()


def say_json(value: Any) -> None:
    """Print one JSON document on stdout."""
    # JSON, too, escapes half a surrogate pair as a number.
    sys.stdout.write(f"{_writable(json.dumps(value, ensure_ascii=False, indent=2, default=str))}\n")


def show(arguments: argparse.Namespace, facts: object, lines: Iterable[str]) -> int:
    """Print the facts as JSON if the arguments ask for it, otherwise the lines. Return exit code 0."""
    if arguments.json:
        say_json(msgspec.to_builtins(facts))
    else:
        for line in lines:
            say(line)
    return 0


def day_and_time(at: float | None) -> str:
    """Return Unix seconds as text, in UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC") if at else "never"


def dollars(amount: float) -> str:
    """Return an amount with as many digits as it needs: a small call costs a fraction of a cent."""
    return f"${amount:.2f}" if amount >= 1 or amount == 0 else f"${amount:.4f}"


async def schema(_settings: Settings, _arguments: argparse.Namespace) -> int:
    """Print the schema of every message."""
    say_json(json_schema())
    return 0
