"""The README's commands work as written."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sprite.__main__ import run
from tests.forking import PYTHON, fork_module, forking_python
from tests.harness import PATIENCE, ROOT, sprite_environment
from tests.in_thread import call_main
from tests.session_logs import Recorded

README = (ROOT / "README.md").read_text(encoding="utf-8")
GUIDE = (ROOT / "docs/getting-started.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\$ (\.venv/bin/python -m sprite [^#\n]*)", GUIDE, re.MULTILINE)


@pytest.fixture(scope="module")
def lived_in(tmp_path_factory: pytest.TempPathFactory, recorded: Recorded) -> Path:
    """Return a workspace after a conversation in `make chat`; its output is stored beside the data."""
    data = tmp_path_factory.mktemp("readme") / "data"
    workspace = data / "workspaces" / "local"
    done = subprocess.run(
        ["make", "chat", f"ARGS=--data {data}"],
        input="My name is Ada and I prefer tea.\n/flush\n/memory user.md\n",
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=sprite_environment(None, **{PYTHON: forking_python()}),
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (data.parent / "printed").write_text(done.stdout)
    # In place of ~/.claude/projects.
    shutil.copytree(recorded.projects, data.parent / "logs")
    return workspace


def test_make_chat_answers_and_learns(lived_in: Path) -> None:
    """test_chat_end_to_end.py covers a second start."""
    printed = (lived_in.parents[2] / "printed").read_text()
    assert "demo model" in printed
    assert "prefers tea" in printed, "the memory file lacks the preference"
    assert "✎ remembered 2 things · user.md updated" in README
    assert "✎ remembered 2 things · user.md updated\n\n" in printed, "and says no more about it"


@pytest.mark.parametrize("command", COMMANDS)
async def test_readme_command_works_as_written(lived_in: Path, command: str) -> None:
    logs = lived_in.parents[2] / "logs"
    words = shlex.split(command.replace("$W", str(lived_in)).replace("~/.claude/projects", str(logs)))
    assert words[:3] == [".venv/bin/python", "-m", "sprite"]
    if "mcp" in words:
        # It needs a main thread, and exits at the end of its input.
        process = await fork_module("sprite", *words[3:], env=sprite_environment(None))
        async with asyncio.timeout(PATIENCE):
            assert await process.wait() == 0
        return
    code, out, err = await call_main(run, words[3:], sprite_environment(None))
    if "doctor" in words:
        # Without an API key, doctor fails and names the missing setting.
        assert "ANTHROPIC_API_KEY" in out
    else:
        assert code == 0, err
        assert out.strip()


def test_files_named_in_readme_exist() -> None:
    for name in re.findall(r"\]\(([\w./-]+)\)", README):
        assert (ROOT / name).exists(), name


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze on this machine")
def test_systemd_unit_is_valid(tmp_path: Path) -> None:
    (unit,) = re.findall(r"```ini\n(.*?)```", GUIDE, re.DOTALL)
    file = tmp_path / "sprite.service"
    file.write_text(unit.replace("%h/.local/bin/sprite", sys.executable))
    done = subprocess.run(
        ["systemd-analyze", "verify", "--user", file],
        capture_output=True,
        text=True,
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
