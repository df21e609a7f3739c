"""The wheel `sprite-agent`, built and installed in an environment with nothing else of ours."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from tests.harness import PATIENCE, ROOT

PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")


def installed_command(folder: Path) -> Path:
    """Build the wheel, install it, and return the command. The environment has the packages of this one."""
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


def start(command: Path, home: Path, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    """Start the installed command with an empty home and few variables."""
    variables |= {"PATH": os.environ["PATH"], "HOME": str(home), "XDG_DATA_HOME": str(home / "share")}
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [command, *arguments], cwd=home, env=variables, text=True, stdin=pipe, stdout=pipe, stderr=pipe
    )
