"""The commands of docs/importing.md, run in their order."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

from sprite.__main__ import run
from tests.harness import ROOT, observations, sprite_environment
from tests.in_thread import call_main
from tests.session_logs import Recorded

PAGE = (ROOT / "docs/importing.md").read_text(encoding="utf-8")
COMMANDS = re.findall(r"^\$ (\.venv/bin/python -m sprite [^#\n]*)", PAGE, re.MULTILINE)


async def test_documented_import_commands_work(tmp_path: Path, recorded: Recorded) -> None:
    workspace, home = tmp_path / "workspace", tmp_path / "home"
    shutil.copytree(recorded.projects, home / ".claude/projects")
    assert len(COMMANDS) == 1
    for command in COMMANDS:
        words = shlex.split(command.replace("$W", str(workspace)).replace("~", str(home)))
        assert words[:3] == [".venv/bin/python", "-m", "sprite"]
        code, out, err = await call_main(run, words[3:], sprite_environment(None))
        assert code == 0, (command, err)
        assert out.strip()
    assert len(observations(workspace)) == 27
