"""Attempts to break out of the agent's sandbox, as root and as an ordinary user, checked from outside.

Each attempt must get through without the sandbox: otherwise its failure inside proves nothing. Both runs happen in a
disposable machine (tests/escape_stage.py).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from sprite.sandbox.sandbox import _engines
from tests.escape_stage import as_nobody, machine, spaces
from tests.escapes import ATTEMPTS

ROOT = Path(__file__).resolve().parents[2]
#: Outside the home directories, which the machine hides; with this interpreter's packages.
PYTHON = Path("/usr/bin/python3")
pytestmark = pytest.mark.skipif(os.uname().sysname != "Linux", reason="bubblewrap is Linux's")
USERS = pytest.mark.parametrize("user", ["root", "nobody"])


@cache
def outcome(user: str, mode: str) -> dict[str, Any]:
    """Run all attempts of a user once."""
    if subprocess.run([*as_nobody(), "test", "-r", ROOT / "tests"], check=False).returncode:
        pytest.skip(f"the attempts run as the user nobody, who may not read {ROOT}")
    engine = next(_engines())
    packages = next(path for path in sys.path if path.endswith("site-packages"))
    start = [str(PYTHON), "-m", "tests.escape_stage", mode, json.dumps(spaces())]
    found = subprocess.run(
        [*machine(engine.program, as_root=user == "root", kept=ROOT), "--chdir", str(ROOT), *start],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": f"{ROOT}:{packages}", "PYTHONDONTWRITEBYTECODE": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert found.returncode == 0, found.stderr[-3000:]
    result: dict[str, Any] = json.loads(found.stdout.splitlines()[-1])
    return result


def names(user: str) -> set[str]:
    return {each.name for each in ATTEMPTS if user == "root" or "root" not in each.tags}


# Without the sandbox, the user `nobody` makes the same attempts, except those that only root can make.
@pytest.mark.parametrize("user", ["root", pytest.param("nobody", marks=pytest.mark.soak)])
def test_every_attempt_works_without_sandbox(user: str) -> None:
    assert names(user) - set(outcome(user, "control")["through"]) == set()


@USERS
def test_no_attempt_gets_through(user: str) -> None:
    result = outcome(user, "sandbox")
    assert set(result["ran"]) == names(user)
    assert len(result["ran"]) >= 120
    assert result["through"] == []


@USERS
def test_resources_are_bounded(user: str) -> None:
    processes, score, scratch = outcome(user, "sandbox")["limits"]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert (processes, score) == ("4096", "500")
    # A file system of memory is made of whole pages.
    assert int(scratch) <= memory // 4 + os.sysconf("SC_PAGE_SIZE")
