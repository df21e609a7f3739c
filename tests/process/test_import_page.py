"""The commands of docs/importing.md, run in their order."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

from sprite.__main__ import run
from sprite.imports.finding import READERS
from tests.elsewhere import HOUSE, claude_mem
from tests.harness import ROOT, observations, sprite_environment
from tests.in_thread import call_main
from tests.session_logs import Recorded

PAGE = (ROOT / "docs/importing.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\$ (\.venv/bin/python -m sprite [^#\n]*)", PAGE, re.MULTILINE)


def home(folder: Path, recorded: Recorded) -> Path:
    """Create a home directory with data of each supported program."""
    shutil.copytree(recorded.projects, folder / ".claude/projects")
    claude_mem(folder / ".claude-mem/claude-mem.db")
    for name, text in {
        "house/AGENTS.md": "Use tabs.\n",
        ".openclaw/workspace/SOUL.md": "Be bold.\n",
        ".openclaw/workspace/USER.md": "- Name: Ada\n",
    }.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


async def test_documented_import_commands_work(tmp_path: Path, recorded: Recorded) -> None:
    workspace, person = tmp_path / "workspace", home(tmp_path / "home", recorded)
    assert len(COMMANDS) == 4
    for command in COMMANDS:
        words = shlex.split(command.replace("$W", str(workspace)).replace("~", str(person)))
        assert words[:3] == [".venv/bin/python", "-m", "sprite"]
        code, out, err = await call_main(run, words[3:], sprite_environment(None))
        assert code == 0, (command, err)
        assert out.strip()
        assert workspace.exists() == ("--dry-run" not in command)
    turns = observations(workspace)
    sources = {source: sum(turn["source"] == source for turn in turns) for source in {turn["source"] for turn in turns}}
    assert sources == {"claude-code": 27, "claude-mem": 5}
    assert HOUSE in {turn["project"] for turn in turns}
    waiting = (workspace / ".os/memory/context.md").read_text()
    assert "Use tabs." in waiting


def test_import_page_lists_every_reader() -> None:
    named = re.findall(r"^\| `([\w.-]+)` \|", PAGE, re.MULTILINE)
    assert set(named) == {reader.kind for reader in READERS}
