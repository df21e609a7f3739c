"""A person's weeks with the agent, written for measurement: turns, and what a memory of them holds at their end.

One JSON form for all of them; those in `histories/` are ours to ship. Patterns are regular expressions that must all
match one line, whatever the case.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec

FOLDER = Path(__file__).resolve().parent / "histories"
#: Where something wanted may be held, beside the four curated files.
ACTIONS, LEARNINGS = "actions", "learnings"
#: The result of a tool call that stands for what the real search answers at that moment.
LIVE = "LIVE"


class Call(msgspec.Struct, frozen=True):
    """A tool call; a result of None is that of a turn which ended first."""

    name: str
    input: dict[str, Any]
    result: str | None
    is_error: bool


class Turn(msgspec.Struct, frozen=True):
    """A turn; `n` is its number from 1, and its id in the log."""

    n: int
    session: str
    at: datetime
    user: str
    tools: list[Call]
    reply: str | None
    outcome: Literal["complete", "interrupted", "error", "max_turns", "crashed"]
    trigger: Literal["user", "task"]
    notice: str | None


class Wanted(msgspec.Struct, frozen=True):
    """An entry that a good memory holds, and the places for it."""

    id: str
    what: str
    where: list[str]
    patterns: list[str]


class Unwanted(msgspec.Struct, frozen=True):
    """An entry that memory must not hold."""

    id: str
    what: str
    patterns: list[str]


class Question(msgspec.Struct, frozen=True):
    """A question, the turns that answer it, and what an answer has in it."""

    question: str
    turns: list[int]
    pattern: str


class Closable(msgspec.Struct, frozen=True):
    """An action that is asked for in one turn and done in another: none that fits the pattern is open at the end."""

    what: str
    asked: int
    done: int
    pattern: str
    by: Literal["command", "person"]


class History(msgspec.Struct, frozen=True):
    """All of it. `answers` are recorded ones to older requests, by variant and range of turns (`t1-t16`)."""

    about: str
    turns: list[Turn]
    wanted: list[Wanted]
    unwanted: list[Unwanted]
    questions: list[Question]
    closable: list[Closable] = []
    answers: dict[str, dict[str, str]] = {}


def load(path: Path) -> History:
    """A history; its closable actions may stand apart in `histories/NAME.closable.json`."""
    history = msgspec.json.decode(path.read_bytes(), type=History)
    apart = FOLDER / f"{path.stem}.closable.json"
    if history.closable or not apart.exists():
        return history
    return msgspec.structs.replace(history, closable=msgspec.json.decode(apart.read_bytes(), type=list[Closable]))


def shipped() -> list[Path]:
    """The histories of this repository."""
    return sorted(path for path in FOLDER.glob("*.json") if not path.name.endswith(".closable.json"))


def matches(patterns: Sequence[str], line: str) -> bool:
    """Whether all patterns are in the line."""
    return all(_compiled(pattern).search(line) for pattern in patterns)


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE)
