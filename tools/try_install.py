"""Build the wheel, and install it in clean environments by uv, uvx, pipx and pip; print sizes and times.

Run `python tools/try_install.py PYTHON...` with the interpreters to try. All packages come from PyPI; the first way of
all begins with empty caches.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    """Try each way with each interpreter."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        code = home / "code"
        for name in ("sprite", "bridge"):
            shutil.copytree(ROOT / name, code / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, code)
        run(home, sys.executable, "-m", "venv", home / "tools")
        tools = home / "tools/bin"
        run(home, tools / "pip", "install", "--quiet", "uv", "pipx")
        run(home, tools / "uv", "build", "--quiet", "--wheel", "--out-dir", home, code)
        (wheel,) = home.glob("*.whl")
        sys.stdout.write(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB\n")
        sys.stdout.write(f"{'python':8} {'way':16} {'install':>8} {'on disk':>8} {'to the page':>12}\n")
        for python in sys.argv[1:] or [sys.executable]:
            try_python(home, python, wheel)


def try_python(home: Path, python: str, wheel: Path) -> None:
    """Install in each way, and start `sprite run`."""
    tools = home / "tools/bin"
    version = run(home, python, "-c", "import platform; print(platform.python_version())").strip()
    place = home / version
    ways: dict[str, tuple[list[str | Path], list[str | Path], Path | None]] = {
        "uv tool install": (
            [tools / "uv", "tool", "install", "--quiet", "--python", python, wheel],
            [home / ".local/bin/sprite"],
            home / ".local/share/uv/tools",
        ),
        "uvx": ([], [tools / "uvx", "--quiet", "--python", python, "--from", wheel, "sprite-agent"], None),
        "pipx install": (
            [tools / "pipx", "install", "--quiet", "--backend", "pip", "--python", python, wheel],
            [home / ".local/bin/sprite-agent"],
            home / ".local/share/pipx",
        ),
        "pip install": ([place / "bin/pip", "install", "--quiet", wheel], [place / "bin/sprite"], place),
    }
    for way, (install, command, kept) in ways.items():
        if way == "pip install":
            run(home, python, "-m", "venv", place)
        began = time.monotonic()
        if install:
            run(home, *install)
        took = time.monotonic() - began
        size = f"{size_of(kept) / 1e6:.0f} MB" if kept else ""
        sys.stdout.write(f"{version:8} {way:16} {took:6.1f} s {size:>8} {to_page(home, command):10.1f} s\n")
        sys.stdout.flush()
        if kept:
            shutil.rmtree(kept)
            shutil.rmtree(home / ".local/bin", ignore_errors=True)


def to_page(home: Path, command: list[str | Path]) -> float:
    """Start Sprite; return the seconds until it prints its page's address."""
    began = time.monotonic()
    words = [*map(str, command), "run", "--port", "0"]
    with subprocess.Popen(words, cwd=home, env=clean(home), stdout=subprocess.PIPE, text=True) as process:
        line = process.stdout.readline() if process.stdout else ""
        took = time.monotonic() - began
        process.send_signal(signal.SIGINT)
    if not re.search("http://.*/login", line):
        raise SystemExit(f"{command[0]} printed {line!r}")
    return took


def size_of(folder: Path) -> int:
    """Return the bytes of all files below a folder."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


def clean(home: Path) -> dict[str, str]:
    """Return few variables, and those with which this machine reaches PyPI."""
    needed = {name: value for name, value in os.environ.items() if name.startswith(("PIP_", "UV_", "SSL_", "HTTPS_"))}
    return {**needed, "HOME": str(home), "PATH": "/usr/bin:/bin"}


def run(home: Path, *command: str | Path) -> str:
    """Run a program to its end and return its output."""
    words = list(map(str, command))
    done = subprocess.run(words, cwd=home, env=clean(home), capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
