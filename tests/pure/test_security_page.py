"""Check that docs/security.md names existing tests for each promise."""

from __future__ import annotations

import re

from tests.forking import ROOT

PAGE = (ROOT / "docs/security.md").read_text(encoding="utf-8")


def test_every_promise_names_test() -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("|") and not line.startswith(("| promise", "|---"))]
    assert rows
    named = re.compile(r"`(?:test_\w+::test_\w+|tests/\S+)`")
    assert [row for row in rows if not named.search(row)] == []


def test_every_named_test_exists() -> None:
    names = set(re.findall(r"`(test_\w+)::(test_\w+)`", PAGE))
    files = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py")}
    missing = {(file, test) for file, test in names if f"def {test}(" not in files.get(file, "")}
    assert missing == set()
    assert [path for path in re.findall(r"`(tests/\S+)`", PAGE) if not (ROOT / path).exists()] == []
