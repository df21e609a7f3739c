"""The parts of a memory file: the person's own and a section for each project, apart and together again."""

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


def test_a_file_is_the_persons_own_and_a_section_for_each_project() -> None:
    parts = split(FILE)
    assert list(parts.sections) == [WEB, API]
    assert parts.own.endswith("- Write the report.\n")
    assert parts.sections[WEB].endswith("- Bo reviews.")
    assert split(template("context.md")).own == template("context.md")


def test_a_session_is_shown_its_own_project_and_no_other() -> None:
    assert shown(FILE, [API]) == FILE.replace(FILE[FILE.index(heading(WEB)) : FILE.index(heading(API))], "")
    assert heading(WEB) not in shown(FILE, [])
    assert heading(API) not in shown(FILE, [])
    assert shown(FILE, [WEB, API, "/x"]) == FILE


def test_what_was_not_shown_stands_again_to_the_byte_and_where_it_stood() -> None:
    view = shown(FILE, [API]).replace("pytest", "nox").replace("the report", "the book")
    assert merged(FILE, view, [API]) == FILE.replace("pytest", "nox").replace("the report", "the book")
    assert merged(FILE, shown(FILE, []), []) == FILE
    # A section without a line leaves; what is added to one that was not shown is added to it.
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
def test_a_heading_without_a_key_is_no_projects(line: str) -> None:
    assert project_of(line) is None


@given(st.lists(st.sampled_from(["# T", "## A", heading(WEB), heading(API), "- x", "", "### y", "text"])))
def test_taking_apart_and_together_loses_no_line(lines: list[str]) -> None:
    content = "\n".join(lines) + "\n"
    for projects in ([], [WEB], [API, WEB]):
        again = merged(content, shown(content, projects), projects)
        said = [line for line in content.split("\n") if line.strip() and not line.startswith("## Project")]
        assert sorted(
            line for line in again.split("\n") if line.strip() and not line.startswith("## Project")
        ) == sorted(said)
        # Put together once, it stays as it is.
        assert merged(again, shown(again, projects), projects) == again


def test_limits_hold_for_what_one_session_is_shown_and_the_whole_file_has_a_bound() -> None:
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


def test_the_files_together_are_counted_with_one_project_at_a_time() -> None:
    files = {name: template(name) for name in ("tools.md", "user.md", "files.md", "context.md")}
    big = "é" * (BYTE_LIMIT // 3)
    for project in (WEB, API):
        files["tools.md"] += f"\n{heading(project)}\n{big}\n"
    assert over_together("tools.md", f"{files['tools.md']}\n", files) is None
    for name in ("files.md", "context.md"):
        files[name] += f"\n{heading(WEB)}\n{big}\n"
    assert over_together("user.md", "é" * BYTE_LIMIT, files) is not None


def test_memorys_own_text_is_known_again_and_what_only_looks_so_is_not() -> None:
    text = given_to('/a "b"', "- The person likes tea.")
    assert without_memory(f"Before {text}after {text}") == f"Before {TAKEN_OUT}\nafter {TAKEN_OUT}\n"
    for other in ("<sprite_memory >never ends", "</sprite_memory>", "<sprite_memoryx ></sprite_memory>"):
        assert without_memory(other) == other
    assert len(without_memory("<sprite_memory >" * 200_000)) == len("<sprite_memory >") * 200_000
