"""Rules against recorded and imported calls: no call that breaks no rule is stopped."""

from __future__ import annotations

from argparse import Namespace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from benchmarks.history import load, shipped
from sprite.agent.rules import review, row_of
from sprite.cli.import_logs import import_logs
from sprite.config import Settings
from sprite.log.transcript import read_transcript
from sprite.rules.check import Book, Facts
from sprite.rules.condition import parse
from tests.harmless_calls import RULES, harmless_calls, write_sessions

#: One call that breaks each rule, in their order.
VIOLATIONS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("Bash", {"command": "git switch -qc main && git commit -m x"}),
    ("Bash", {"command": "git push -q origin main"}),
    ("Bash", {"command": "cd x && .venv/bin/pip install -r r.txt"}),
    ("Bash", {"command": "uv run alembic -x dsn=$STAGING_DSN upgrade head"}),
    ("Bash", {"command": "echo hi | mail -s Hello ceo@client.example"}),
    ("mcp__mail__send", {"to": ["tilda@moerk.example", "ceo@client.example"]}),
    ("Edit", {"file_path": "/work/shop/tests/test_a.py", "old_string": "a", "new_string": "b"}),
    ("Write", {"file_path": "/etc/hosts", "content": "x"}),
    ("Bash", {"command": "mv ~/Letters/sent/a.pdf /tmp"}),
    ("WebFetch", {"url": "https://a.prod.example.org/x", "prompt": "x"}),
    ("Bash", {"command": "cd /tmp && rm -rf build"}),
    ("Bash", {"command": "docker compose -f dev.yml down"}),
    ("Bash", {"command": "npm publish --access public"}),
    ("Bash", {"command": "kubectl -n prod delete pod a"}),
    ("Bash", {"command": "terraform -chdir=infra apply"}),
    ("Bash", {"command": "sudo systemctl restart main-db-1"}),
    ("mcp__payroll__list", {}),
    ("Bash", {"command": "curl -s http://wiki.internal/x"}),
    ("WebSearch", {"query": "x"}),
    ("Bash", {"command": "psql shop_prod -c 'select 1'"}),
)
#: Calls of the shipped histories that these rules are about: (history, turn).
TRUE_STOPS = {
    *(("practice-manager", turn) for turn in (20, 46)),
    *(("two-languages", turn) for turn in (24, 43, 51, 52, 61, 68, 72, 93, 116)),
}


def book() -> Book:
    return Book(list(enumerate(map(parse, RULES))))


def test_each_rule_is_about_its_violation() -> None:
    saturday = datetime(2026, 1, 10, 10, 0)  # noqa: DTZ001 - the person's own wall clock
    found = [book().find(Facts(tool, given, "/work/shop", saturday)) for tool, given in VIOLATIONS]
    assert [[match.rule for match in matches] for matches in found] == [[number] for number in range(len(RULES))]


async def test_imported_calls_meet_no_rule(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    calls = harmless_calls()
    write_sessions(tmp_path / "logs", calls)
    settings = Settings(tmp_path / "workspace")
    assert await import_logs(settings, Namespace(paths=[tmp_path / "logs"], dry_run=False, json=True)) == 0
    capsys.readouterr()
    count, stopped, rules = 0, [], book()
    async with read_transcript(settings.transcript_db) as transcript:
        for turn in await transcript.observations_after(0, 10_000):
            for call in turn.tool_calls:
                count += 1
                at = datetime.fromtimestamp(turn.timestamp, UTC)
                if rules.find(Facts(call["name"], call["input"], None, at)):
                    stopped.append(call)
        found = row_of(RULES[0])
        await review(found, transcript, ZoneInfo("UTC"))
    assert (count, stopped) == (3_200, [])
    assert (found.checked, found.examples) == (3_200, [])


def test_recorded_calls_meet_rules_they_break_only() -> None:
    rules, stopped, count = book(), set(), 0
    for path in shipped():
        for turn in load(path).turns:
            for call in turn.tools:
                count += 1
                if rules.find(Facts(call.name, call.input, "/home/sprite", turn.at)):
                    stopped.add((path.stem, turn.n))
    assert count >= 200
    assert stopped == TRUE_STOPS
