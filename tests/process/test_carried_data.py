"""The data of each released version opens in this build."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tests.harness import PATIENCE, ROOT, sprite_environment

FIXTURES = sorted((ROOT / "tests/fixtures").glob("data-*.tar.xz"))
SAID = """\
What do you remember about me?
/memory user.md
/actions
/cards
/search tea
"""


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda path: path.name)
def test_data_of_version_opens(fixture: Path, tmp_path: Path) -> None:
    with tarfile.open(fixture) as packed:
        packed.extractall(tmp_path, filter="data")
    chat = [sys.executable, "-m", "bridge", "chat", "--data", str(tmp_path)]
    environment = {**sprite_environment(None), "HOME": str(tmp_path)}
    done = subprocess.run(
        chat, input=SAID, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=PATIENCE, check=False
    )
    assert done.returncode == 0, done.stderr
    for words in ("The user's name is Ada.", "The user prefers tea.", "call Bo", "pears", "2099-03-01"):
        assert words in done.stdout, done.stdout
