"""The page's sources, read as text: each panel makes its elements one way, and no line is wider than a screen."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

WEB = Path(__file__).resolve().parents[2] / "bridge/web"
WIDEST = 120
LIT = re.compile(r"from '[^']*(?:lit-html|template\.js)")
HAND = re.compile(r"import \{[^}]*\bh\b[^}]*\} from '[^']*dom\.js'")
#: What a panel's modules must not import: they make elements with h(), or with lit templates.
ELSEWHERE = {"chat": HAND, "canvas": LIT, "memory": HAND, "shell": HAND}


def sources(folder: Path) -> list[Path]:
    found = [path for path in folder.rglob("*") if path.suffix in {".js", ".css", ".html"}]
    return sorted(path for path in found if "vendor" not in path.parts)


@pytest.mark.parametrize(("panel", "other_way"), ELSEWHERE.items())
def test_a_panel_makes_its_elements_in_one_way(panel: str, other_way: re.Pattern[str]) -> None:
    modules = sources(WEB / panel)
    own_way = LIT if other_way is HAND else HAND
    assert any(own_way.search(path.read_text()) for path in modules)
    assert [path.name for path in modules if other_way.search(path.read_text())] == []


def test_no_line_is_longer_than_the_formatter_allows() -> None:
    ours = sources(WEB)
    assert len(ours) > 60
    wide = [
        f"{path.relative_to(WEB)}:{number}"
        for path in ours
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if len(line) > WIDEST
    ]
    assert wide == []
