"""Checks of the source code: supervised tasks, one reader of the environment, portable regular expressions."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.forking import ROOT

FILES = [path for program in ("sprite", "bridge") for path in sorted((ROOT / program).rglob("*.py"))]


def calls(path: Path, *methods: str) -> list[ast.Call]:
    source = path.read_text(encoding="utf-8")
    if not any(method in source for method in methods):
        return []
    found = (node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
    return [call for call in found if isinstance(call.func, ast.Attribute) and call.func.attr in methods]


def test_every_task_has_name() -> None:
    unnamed = [
        f"{path}:{call.lineno}"
        for path in FILES
        for call in calls(path, "create_task", "ensure_future")
        if "name" not in {keyword.arg for keyword in call.keywords}
    ]
    assert unnamed == []


def test_no_regex_has_possessive_group() -> None:
    """Python before 3.11.5 matches them wrongly (CPython gh-106052). Possessive characters and classes are right."""
    group = re.compile(r"\)(?:[*+?]|\{\d*,?\d*\})\+")
    files = [*FILES, *(ROOT / "sprite").rglob("*.toml")]
    assert [str(path) for path in files if group.search(path.read_text(encoding="utf-8"))] == []
