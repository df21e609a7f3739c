"""`python -m bridge chat` as people run it: the real sprite, SDK and CLI on the offline model, over a pipe."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[1]
#: A first turn starts the CLI, and the end of a session curates: seconds each, more on a busy machine.
_PATIENCE_SECONDS = 180


def chat(workspace: Path, *lines: str, permissions: str = "bypass") -> str:
    """What a conversation of these lines prints; it must end well, and in time."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith(("ANTHROPIC_", "SPRITE_", "CLAUDE"))
    }
    done = subprocess.run(
        [sys.executable, "-m", "bridge", "chat", "--workspace", workspace, "--permissions", permissions],
        input="".join(f"{line}\n" for line in lines),
        capture_output=True,
        cwd=_ROOT,
        # No colours are asked for, and the sprite may act: what runs here is a throw-away workspace.
        env={**environment, "IS_SANDBOX": "1"},
        text=True,
        timeout=_PATIENCE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    return done.stdout


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return tmp_path / "workspace"


def test_a_message_gets_a_reply_and_the_stand_in_says_what_it_is(workspace: Path) -> None:
    printed = chat(workspace, "hello there")
    banner, _, rest = printed.partition("hello there")
    assert "offline stand-in" in banner
    assert rest.strip()


def test_a_card_is_drawn_as_a_table(workspace: Path) -> None:
    printed = chat(workspace, "make a table card of apples 3, pears 5")
    after = printed.partition("▸ create_card")[2]
    cells = [line.strip("│ ").split() for line in after.splitlines() if line.startswith("│")]
    assert ["apples", "3"] in cells
    assert ["pears", "5"] in cells


def test_a_tool_runs_and_is_seen(workspace: Path) -> None:
    printed = chat(workspace, "run `echo seen-by-a-person`")
    assert "▸ Bash  echo seen-by-a-person" in printed
    assert "✓ seen-by-a-person" in printed


def test_memory_shows_its_files(workspace: Path) -> None:
    printed = chat(workspace, "hello", "/memory", "/memory user.md", "/status")
    for name in ("soul.md", "os.md", "tools.md", "files.md", "user.md", "context.md"):
        assert name in printed


def test_a_second_run_remembers_the_first(workspace: Path) -> None:
    chat(workspace, "my name is Wilhelmina")
    printed = chat(workspace, "what is my name?", "/search Wilhelmina")
    answer = printed.partition("what is my name?")[2].partition("/search")[0]
    assert "Wilhelmina" in answer
    assert "Nothing found" not in printed
