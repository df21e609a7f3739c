"""What commands print: text for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import Any

#: What would steer a terminal, all but tabs and line breaks: names of files and words of pages reach it.
_CONTROL = dict.fromkeys([*range(9), *range(11, 32), *range(127, 160)], "\N{REPLACEMENT CHARACTER}")


def say(text: str = "") -> None:
    """Prints a line on stdout."""
    sys.stdout.write(f"{_writable(text.translate(_CONTROL))}\n")


def warn(text: str) -> None:
    """Prints a line for people on stderr, apart from what programs read."""
    sys.stderr.write(f"{_writable(text.translate(_CONTROL))}\n")


def one_line(value: object) -> str:
    """A path, or what else comes from outside, on one line: what cannot be printed is replaced."""
    return "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in str(value))


def _writable(text: str) -> str:
    # Half a character, as an undecodable file name has it, is written by its number: no stream takes it.
    return text.encode("utf-8", "backslashreplace").decode()


def say_json(value: Any) -> None:
    """Prints one JSON document on stdout."""
    # A number is what JSON, too, has for half a character.
    sys.stdout.write(f"{_writable(json.dumps(value, ensure_ascii=False, indent=2, default=str))}\n")


def day_and_time(at: float | None) -> str:
    """Returns Unix seconds as people read them, in UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC") if at else "never"


def dollars(amount: float) -> str:
    """Returns an amount with as many digits as it needs: a small call costs a fraction of a cent."""
    return f"${amount:.2f}" if amount >= 1 or amount == 0 else f"${amount:.4f}"
