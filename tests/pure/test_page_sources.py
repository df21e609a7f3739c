"""The page's sources, read as text: panels render with lit templates, and lines stay within the formatter's width."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

WEB = Path(__file__).resolve().parents[2] / "bridge/web"
WIDEST = 120
LIT = re.compile(r"from '[^']*(?:lit-html|template\.js)")
HAND_MADE = re.compile(r"document\.createElement\b")


def sources(folder: Path) -> list[Path]:
    found = [path for path in folder.rglob("*") if path.suffix in {".js", ".css", ".html"}]
    return sorted(path for path in found if "vendor" not in path.parts)


@pytest.mark.parametrize("panel", ["chat", "canvas", "memory", "shell"])
def test_panel_draws_with_lit_templates(panel: str) -> None:
    modules = sources(WEB / panel)
    assert any(LIT.search(path.read_text()) for path in modules)
    assert [path.name for path in modules if HAND_MADE.search(path.read_text())] == []


def test_lines_stay_within_formatter_width() -> None:
    ours = sources(WEB)
    assert len(ours) > 60
    wide = [
        f"{path.relative_to(WEB)}:{number}"
        for path in ours
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if len(line) > WIDEST
    ]
    assert wide == []
