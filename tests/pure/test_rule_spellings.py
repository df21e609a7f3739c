"""200 rules hold for 2,000 direct spellings; the ways round are those of docs/rules.md."""

from __future__ import annotations

import re
import shlex
from datetime import datetime
from pathlib import Path

import pytest

from sprite.rules.check import Book, Facts
from sprite.rules.condition import parse
from tests.rule_attempts import attempts

ROOT = Path(__file__).resolve().parents[2]
NOON = datetime(2026, 12, 1, 12, 0)  # noqa: DTZ001 - the person's own wall clock


def book(*conditions: str) -> Book:
    return Book(list(enumerate(parse(f"stop when {condition}") for condition in conditions)))


def test_200_rules_hold_for_2000_spellings() -> None:
    made = attempts()
    rules = book(*(condition for condition, _ in made))
    assert len({condition for condition, _ in made}) == 200
    assert sum(len(calls) for _, calls in made) == 2000
    missed = [
        (condition, *call)
        for number, (condition, calls) in enumerate(made)
        for call in calls
        if not any(match.rule == number and match.is_certain for match in rules.find(Facts(*call, "/work", NOON)))
    ]
    assert missed == []


def ways_round() -> list[tuple[str, str, str]]:
    rows = re.findall(
        r"^\| ([^|]+?) \| `((?:[^`|]|\\\||`(?! \|))+)` \| (.+?) \|$", (ROOT / "docs/rules.md").read_text(), re.MULTILINE
    )
    return [(way, example.replace(r"\|", "|"), held) for way, example, held in rows]


@pytest.mark.parametrize(("example", "held"), [row[1:] for row in ways_round()])
def test_way_round_is_held_as_documented(example: str, held: str) -> None:
    rules = book('command "git commit"', 'host "prod.example.org"')
    found = rules.find(Facts("Bash", {"command": example}, "/work", NOON))
    assert [match.is_certain for match in found] == {"the rule": [True], "the rule, by asking": [False]}.get(held, [])
    assert held.startswith(("the rule", "not held", "the sandbox"))


def test_documented_ways_include_required_ones() -> None:
    ways = {way: held for way, _, held in ways_round()}
    assert len(ways) >= 30
    for required in ("`sh -c`", "`env` and assignments", "alias", "options before the word", "absolute path"):
        assert required in ways
    assert ways["script written first"] == "not held"


#: Calls that name what a rule is about, and do something else.
HARMLESS = (
    "git log --grep commit",
    "git add commit.txt",
    "echo 'git commit'",
    "grep -rn 'git commit' docs",
    "cat > notes.md <<'E'\ngit commit -m x\nE",
    "git commit-graph write",
    "gitk commit",
    "git show HEAD -- commit",
    "# git commit",
    "printf '%s\\n' 'git' 'commit'",
    "git stash push -m commit",
    "man git commit",
    "git help -a; commit",
    "ls git commit",
)


@pytest.mark.parametrize("command", HARMLESS)
def test_mention_of_forbidden_command_is_no_stop(command: str) -> None:
    assert book('command "git commit"').find(Facts("Bash", {"command": command}, "/work", NOON)) == []


def test_quoted_words_are_commands_like_plain_ones() -> None:
    line = shlex.join(["git", "-C", "a b", "commit", "-m", "it's"])
    assert book('command "git commit"').find(Facts("Bash", {"command": line}, "/work", NOON))
