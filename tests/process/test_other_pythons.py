"""Other Python versions: a supported system Python, and versions that are too old."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from sprite import OLDEST_PYTHON
from sprite.memory.files import CURATED
from tests.curated_workspace import without_marks
from tests.harness import PATIENCE, ROOT, sprite_environment
from tests.looks import dump

SYSTEM_PYTHON = Path("/usr/bin/python3")
#: Tests of regular expressions and JSON that start no process.
CHECKED = ("test_checks.py", "test_model_exits.py", "test_secret_rules.py")


def version_of(python: Path) -> tuple[int, ...]:
    words = "import sys; print(*sys.version_info[:3])"
    found = subprocess.run([python, "-c", words], capture_output=True, text=True, check=True)
    return tuple(map(int, found.stdout.split()))


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a system Python in an environment with the packages of this one."""
    if not SYSTEM_PYTHON.exists():
        pytest.skip(f"no {SYSTEM_PYTHON}")
    found = version_of(SYSTEM_PYTHON)
    if found == sys.version_info[:3] or found < OLDEST_PYTHON or found[:2] != sys.version_info[:2]:
        pytest.skip(f"{SYSTEM_PYTHON} is this Python, too old, or cannot load this one's packages")
    environment = tmp_path_factory.mktemp("system") / "venv"
    made = subprocess.run(
        [SYSTEM_PYTHON, "-m", "venv", "--without-pip", environment], capture_output=True, text=True, check=False
    )
    if made.returncode:
        pytest.skip(f"{SYSTEM_PYTHON} cannot make an environment: {made.stdout}")
    (packages,) = environment.glob("lib/python*/site-packages")
    (packages / "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return environment / "bin" / "python"


def run(python: Path, *arguments: str, said: str = "", timeout: float = PATIENCE) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [python, *arguments],
        input=said,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**sprite_environment(None), "PYTHONDONTWRITEBYTECODE": "1"},
        timeout=timeout,
        check=False,
    )


def test_system_python_holds_conversation(python: Path, tmp_path: Path) -> None:
    words = "My name is Ada and I prefer tea.\n/flush\n/memory user.md\n"
    done = run(python, "-m", "bridge", "chat", "--data", str(tmp_path), said=words)
    assert done.returncode == 0, done.stderr
    assert "Noted." in done.stdout
    assert "prefers tea" in done.stdout, done.stdout + done.stderr


@pytest.mark.soak
def test_system_python_passes_doctor(python: Path, tmp_path: Path) -> None:
    done = run(python, "-m", "sprite", "doctor", "--without-model", "--workspace", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    version = ".".join(map(str, version_of(SYSTEM_PYTHON)))
    assert f"ok    python       {version}" in done.stdout


async def test_system_python_rebuilds_same_memory(python: Path, curated: Path, tmp_path: Path) -> None:
    """Full-text tables are left out, because another SQLite version may store them differently."""

    def memory(workspace: Path) -> dict[str, Any]:
        tables = without_marks(dump(workspace / ".os/memory/memory.db"))
        rows = {name: rows for name, rows in tables.items() if "_fts_" not in name}
        return {**rows, **{name: (workspace / ".os/memory" / name).read_bytes() for name in CURATED}}

    workspace = shutil.copytree(curated, tmp_path / "workspace")
    before = memory(workspace)
    for path in [
        *(workspace / ".os/memory").glob("memory.db*"),
        *(workspace / ".os/memory" / name for name in CURATED),
    ]:
        path.unlink()
    done = run(python, "-m", "sprite", "rebuild", "--workspace", str(workspace))
    assert done.returncode == 0, done.stderr
    assert memory(workspace) == before


@pytest.mark.soak
def test_system_python_passes_pure_tests(python: Path) -> None:
    paths = [str(ROOT / "tests" / "pure" / name) for name in CHECKED]
    done = run(python, "-m", "pytest", "-n", "0", "-p", "no:cacheprovider", *paths, timeout=3 * PATIENCE)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr


@pytest.mark.parametrize("program", ["sprite", "bridge"])
def test_old_python_is_rejected_by_name(program: str) -> None:
    old = "import runpy, sys; sys.version_info = (3, 11, 1, 'final', 0); runpy.run_module({!r}, run_name='__main__')"
    done = run(Path(sys.executable), "-c", old.format(program))
    assert done.returncode == 2
    words = f"{sys.executable} is Python 3.11.1, which is too old. Install Python 3.11.2 or newer."
    assert done.stderr == f"{program}: {words}\n"


@pytest.mark.parametrize("program", ["sprite", "bridge"])
def test_version_check_parses_in_old_python(program: str) -> None:
    """The package imports nothing else before the check."""
    tree = ast.parse((ROOT / program / "__init__.py").read_text(), feature_version=(3, 6))
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    assert [alias.name for node in imports for alias in node.names] == ["sys"]


def test_make_rejects_old_python(tmp_path: Path) -> None:
    old = tmp_path / "python3.6"
    old.write_text(f"#!/bin/sh\nexec {sys.executable} -c 'import sys; sys.version_info = (3, 6, 1); import sprite'\n")
    old.chmod(0o755)
    done = subprocess.run(
        ["make", f"VENV={tmp_path}/venv", f"PYTHON={old}", "chat"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=dict(os.environ),
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode != 0
    assert "Python 3.6.1, which is too old" in done.stderr
    assert "make PYTHON=python3.12" in done.stdout
    assert not (tmp_path / "venv").exists()


def test_make_names_missing_python() -> None:
    """Also where .venv exists, which would ignore it."""
    done = subprocess.run(
        ["make", "PYTHON=python9", ".venv/.run"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode != 0
    assert "There is no python9" in done.stdout
