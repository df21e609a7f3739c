"""The README's commands do what it says, run as they stand there."""

from __future__ import annotations

import asyncio
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from sprite.__main__ import run
from tests.forking import fork_module
from tests.harness import PATIENCE, ROOT, sprite_environment
from tests.in_thread import call_main
from tests.session_logs import Recorded

README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\$ (\.venv/bin/python -m sprite [^#\n]*)", README, re.MULTILINE)


@pytest.fixture(scope="module")
def lived_in(tmp_path_factory: pytest.TempPathFactory, recorded: Recorded) -> Path:
    """A workspace in which `make chat` has been talked to."""
    data = tmp_path_factory.mktemp("readme") / "data"
    workspace = data / "workspaces" / "local"
    done = _make_chat(data, "My name is Ada and I prefer tea.\n/flush\n")
    assert done.returncode == 0, done.stderr
    # Stands for somebody's ~/.claude/projects.
    shutil.copytree(recorded.projects, data.parent / "logs")
    return workspace


def _make_chat(data: Path, said: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["make", "chat", f"ARGS=--data {data}"],
        input=said,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=sprite_environment(None),
        timeout=PATIENCE,
        check=False,
    )


def test_make_chat_remembers_in_a_second_start_what_was_said_in_the_first(lived_in: Path) -> None:
    done = _make_chat(lived_in.parents[1], "what do you remember about tea?\n")
    assert "prefers tea" in done.stdout
    assert "stand-in" in done.stdout


@pytest.mark.parametrize("command", COMMANDS)
async def test_a_command_of_the_readme_works_as_it_stands_there(lived_in: Path, command: str) -> None:
    logs = lived_in.parents[2] / "logs"
    words = shlex.split(command.replace("$W", str(lived_in)).replace("~/.claude/projects", str(logs)))
    assert words[:3] == [".venv/bin/python", "-m", "sprite"]
    if "mcp" in words or "follow" in words:
        # They need a main thread. `mcp` has answered nobody, and ends where nobody asks.
        process = await fork_module("sprite", *words[3:], env=sprite_environment(None))
        async with asyncio.timeout(PATIENCE):
            assert await process.wait() == 0
        return
    code, out, err = await call_main(run, words[3:], sprite_environment(None))
    if "doctor" in words:
        # Without a key it has one thing to say, and says what to do about it.
        assert "ANTHROPIC_API_KEY" in out
    else:
        assert code == 0, err
        assert out.strip()


def test_every_file_the_readme_names_is_there() -> None:
    for name in re.findall(r"\]\(([\w./-]+)\)", README):
        assert (ROOT / name).exists(), name
