"""How commands print: for people as text, for programs as JSON."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from typing import Any


def say(text: str = "") -> None:
    """A line for people (or the JSON for programs) on stdout."""
    sys.stdout.write(f"{text}\n")


def warn(text: str) -> None:
    """A line for people on stderr, beside what programs read."""
    sys.stderr.write(f"{text}\n")


def say_json(value: Any) -> None:
    """One JSON document on stdout."""
    say(json.dumps(value, ensure_ascii=False, indent=2, default=str))


def day_and_time(at: float | None) -> str:
    """Unix seconds as people read them, in UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC") if at else "never"


def dollars(amount: float) -> str:
    """An amount with as many digits as it needs: small calls cost parts of a cent."""
    return f"${amount:.2f}" if amount >= 1 or amount == 0 else f"${amount:.4f}"
