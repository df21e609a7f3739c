"""The wheel `sprite-agent` and its command `sprite`, in an environment with nothing else of ours."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from http.cookiejar import CookieJar
from pathlib import Path
from urllib.request import HTTPCookieProcessor, ProxyHandler, build_opener

import pytest

from sprite import __version__
from tests.harness import PATIENCE, ROOT

PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel, install it, and return the command. The environment has the packages of this one."""
    folder = tmp_path_factory.mktemp("wheel")
    # setuptools leaves its work in the folder that it builds.
    for name in ("bridge", "sprite"):
        shutil.copytree(ROOT / name, folder / "code" / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / "code")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True, timeout=PATIENCE)
    (packages,) = (folder / "venv").glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    build = [*PIP, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(folder / "code")]
    subprocess.run(build, check=True, timeout=PATIENCE)
    (wheel,) = folder.glob("sprite_agent-*.whl")
    install = [*PIP, "--python", str(folder / "venv/bin/python"), "install", "--no-deps", "--no-index"]
    subprocess.run([*install, str(wheel)], check=True, timeout=PATIENCE)
    return folder / "venv/bin/sprite"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path


def _start(command: Path, home: Path, *arguments: str) -> subprocess.Popen[str]:
    variables = {"PATH": os.environ["PATH"], "HOME": str(home), "XDG_DATA_HOME": str(home / "share")}
    return subprocess.Popen(
        [command, *arguments], cwd=home, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def _run(command: Path, home: Path, *arguments: str) -> tuple[int, str, str]:
    process = _start(command, home, *arguments)
    out, error = process.communicate(timeout=PATIENCE)
    return process.returncode, out, error


@pytest.fixture
def running(command: Path, home: Path) -> Iterator[str]:
    """Run `sprite run` and yield the address of its page."""
    process = _start(command, home, "run", "--port", "0")
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
    assert all(f"\n  {name} " in out for name in ("run", "chat", "memory", "users"))
    assert _run(command, home, "--version")[1] == f"sprite {__version__}\n"


def test_unknown_command(command: Path, home: Path) -> None:
    code, _, error = _run(command, home, "rnu")
    assert (code, "sprite --help" in error) == (2, True)


def test_command_before_first_run(command: Path, home: Path) -> None:
    code, _, error = _run(command, home, "memory", "learnings")
    assert (code, "no sprite has run there yet" in error) == (2, True)
