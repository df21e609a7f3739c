"""The wheel `sprite-agent` and its command `sprite`, in an environment with nothing else of ours."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from http.cookiejar import CookieJar
from pathlib import Path
from urllib.request import HTTPCookieProcessor, ProxyHandler, build_opener

import pytest

from sprite import __version__
from tests.harness import PATIENCE
from tests.wheel import PIP, installed_command, start

COMMANDS = (
    *("run", "chat", "status", "doctor", "memory", "actions", "changes", "undo", "rebuild", "import", "export"),
    *("follow", "restore", "mcp", "acp", "users", "store", "audit", "update"),
)


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed_command(tmp_path_factory.mktemp("wheel"))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


def _run(command: Path, home: Path, *arguments: str, said: str = "", **variables: str) -> tuple[int, str, str]:
    process = start(command, home, *arguments, **variables)
    out, error = process.communicate(said, timeout=PATIENCE)
    return process.returncode, out, error


@pytest.fixture
def running(command: Path, home: Path) -> Iterator[str]:
    """Run `sprite run` and yield the address of its page."""
    process = start(command, home, "run", "--port", "0")
    try:
        assert process.stdout is not None
        yield process.stdout.readline().split()[-1]
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE) == 0
    finally:
        process.kill()
        process.communicate()


def test_run_serves_page(running: str, home: Path) -> None:
    browser = build_opener(ProxyHandler({}), HTTPCookieProcessor(CookieJar()))
    page = browser.open(running, timeout=PATIENCE).read().decode()
    assert "<title>" in page
    assert (home / "share/sprite").is_dir()


def test_help_lists_both_programs(command: Path, home: Path) -> None:
    code, out, _ = _run(command, home, "--help")
    assert code == 0
    for name in COMMANDS:
        assert f"\n  {name} " in out
    assert (command.parent / "sprite-agent").read_bytes() == command.read_bytes()
    assert _run(command, home, "--version")[1] == f"sprite {__version__}\n"


def test_unknown_command(command: Path, home: Path) -> None:
    code, _, error = _run(command, home, "rnu")
    assert (code, "sprite --help" in error) == (2, True)


def test_command_before_first_run(command: Path, home: Path) -> None:
    code, _, error = _run(command, home, "memory", "learnings")
    assert (code, "no sprite has run there yet" in error) == (2, True)


def test_update_installs_newest_version(command: Path, home: Path) -> None:
    """pip installed the command and finds a newer wheel, whose first start backs up the data.

    The last test here, because the others use the same installation.
    """
    source = command.parents[2] / "code"
    code = source / "sprite/__init__.py"
    code.write_text(code.read_text().replace(f'"{__version__}"', '"99.0.0"'))
    shutil.rmtree(source / "build")
    build = [*PIP, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(home / "new")]
    subprocess.run([*build, str(source)], check=True, timeout=PATIENCE)
    assert _run(command, home, "chat", said="My name is Ada.\n/flush\n")[0] == 0

    index = {"PIP_NO_INDEX": "1", "PIP_NO_DEPS": "1", "PIP_FIND_LINKS": str(home / "new")}
    _, out, error = _run(command, home, "update", **index)
    assert f"Updated Sprite from {__version__} to 99.0.0." in out, error

    assert "The user's name is Ada." in _run(command, home, "chat", said="/memory user.md\n")[1]
    kept = home / "share/sprite/workspaces/local/.os/backup/transcript.db"
    with closing(sqlite3.connect(kept)) as log:
        assert log.execute("SELECT user_message FROM observations").fetchone() == ("My name is Ada.",)
    assert (home / "share/sprite/backup/bridge.db").is_file()
