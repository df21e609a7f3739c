"""What commands print: text for people, JSON for programs."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import Any


def say(text: str = "") -> None:
    """Prints a line on stdout."""
    sys.stdout.write(f"{text}\n")


def warn(text: str) -> None:
    """Prints a line for people on stderr, apart from what programs read."""
    sys.stderr.write(f"{text}\n")


def say_json(value: Any) -> None:
    """Prints one JSON document on stdout."""
    say(json.dumps(value, ensure_ascii=False, indent=2, default=str))


def day_and_time(at: float | None) -> str:
    """Returns Unix seconds as people read them, in UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC") if at else "never"


def dollars(amount: float) -> str:
    """Returns an amount with as many digits as it needs: a small call costs a fraction of a cent."""
    return f"${amount:.2f}" if amount >= 1 or amount == 0 else f"${amount:.4f}"
