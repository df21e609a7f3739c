"""Sections of a memory file: the person's part and one per project, split and joined."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sprite.memory.files import BYTE_LIMIT, LINE_LIMITS, WHOLE_BYTE_LIMIT, over_limit, over_together, shown_to, template
from sprite.memory.sections import heading, merged, project_of, shown, split
from sprite.memory.words import TAKEN_OUT, without_memory
from sprite.memory.words import given as given_to

WEB, API = "/home/ada/web", "https://github.com/ada/api.git"
FILE = f"""# Context
*What is going on.*

## Active tasks
- Write the report.

## Project: {WEB}
- Tests: make test

### People
- Bo reviews.

## Project: {API}
- Tests: pytest
"""


def test_file_splits_into_personal_and_project_sections() -> None:
    parts = split(FILE)
    assert list(parts.sections) == [WEB, API]
    assert parts.own.endswith("- Write the report.\n")
    assert parts.sections[WEB].endswith("- Bo reviews.")
    assert split(template("context.md")).own == template("context.md")


def test_session_sees_its_own_project_only() -> None:
    assert shown(FILE, [API]) == FILE.replace(FILE[FILE.index(heading(WEB)) : FILE.index(heading(API))], "")
    assert heading(WEB) not in shown(FILE, [])
    assert heading(API) not in shown(FILE, [])
    assert shown(FILE, [WEB, API, "/x"]) == FILE


def test_hidden_sections_are_restored_in_place_verbatim() -> None:
    view = shown(FILE, [API]).replace("pytest", "nox").replace("the report", "the book")
    assert merged(FILE, view, [API]) == FILE.replace("pytest", "nox").replace("the report", "the book")
    assert merged(FILE, shown(FILE, []), []) == FILE
    # A section without lines is removed; an addition to a hidden section is appended to it.
    assert heading(API) not in merged(FILE, f"# Context\n\n{heading(API)}\n", [API])
    assert merged(FILE, f"# Context\n\n{heading(WEB)}\n- More.\n", []).count(heading(WEB)) == 1
    assert "- Bo reviews.\n- More.\n" in merged(FILE, f"# Context\n\n{heading(WEB)}\n- More.\n", [])


@pytest.mark.parametrize(
    "line",
    [
        "## Project: ../..",
        "## Project: web",
        "## Project:",
        "### Project: /a",
        "Project: /a",
        "## Project: /a/../b",
        "## Projects",
    ],
)
def test_heading_without_key_is_personal(line: str) -> None:
    assert project_of(line) is None


@given(st.lists(st.sampled_from(["# T", "## A", heading(WEB), heading(API), "- x", "", "### y", "text"])))
def test_split_and_join_loses_no_line(lines: list[str]) -> None:
    content = "\n".join(lines) + "\n"
    for projects in ([], [WEB], [API, WEB]):
        again = merged(content, shown(content, projects), projects)
        said = [line for line in content.split("\n") if line.strip() and not line.startswith("## Project")]
        assert sorted(
            line for line in again.split("\n") if line.strip() and not line.startswith("## Project")
        ) == sorted(said)
        # A joined file is stable.
        assert merged(again, shown(again, projects), projects) == again


def test_limits_apply_per_session_and_to_whole_file() -> None:
    half = "\n".join(["- line"] * (LINE_LIMITS["context.md"] // 2 - 2))
    sections = [f"{heading(f'/p/{number}')}\n{half}" for number in range(20)]
    content = "\n\n".join(["# Context", half, *sections]) + "\n"
    assert over_limit("context.md", content) is None
    assert over_limit("user.md", content) is not None
    assert over_limit("context.md", content.replace(half, f"{half}\n- one\n- more\n- and\n- more", 2)) is not None
    shown_lines = shown_to("context.md", content, [f"/p/{number}" for number in range(20)])
    assert heading("/p/0") in shown_lines
    assert heading("/p/1") not in shown_lines
    big = "x" * (BYTE_LIMIT // 2)
    number = WHOLE_BYTE_LIMIT // len(big) + 1
    whole = "\n\n".join(["# C", *(f"{heading(f'/p/{each}')}\n{big}" for each in range(number))]) + "\n"
    assert "all projects" in (over_limit("tools.md", whole) or "")


def test_total_size_counts_one_project_at_time() -> None:
    files = {name: template(name) for name in ("tools.md", "user.md", "files.md", "context.md")}
    big = "é" * (BYTE_LIMIT // 3)
    for project in (WEB, API):
        files["tools.md"] += f"\n{heading(project)}\n{big}\n"
    assert over_together("tools.md", f"{files['tools.md']}\n", files) is None
    for name in ("files.md", "context.md"):
        files[name] += f"\n{heading(WEB)}\n{big}\n"
    assert over_together("user.md", "é" * BYTE_LIMIT, files) is not None


def test_memorys_own_text_is_recognized_exactly() -> None:
    text = given_to('/a "b"', "- The person likes tea.")
    assert without_memory(f"Before {text}after {text}") == f"Before {TAKEN_OUT}\nafter {TAKEN_OUT}\n"
    for other in ("<sprite_memory >never ends", "</sprite_memory>", "<sprite_memoryx ></sprite_memory>"):
        assert without_memory(other) == other
    assert len(without_memory("<sprite_memory >" * 200_000)) == len("<sprite_memory >") * 200_000
