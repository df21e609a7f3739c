"""`sprite update`: upgrade the program with the tool that installed it. Nothing is restarted."""

from __future__ import annotations

import argparse
import importlib.util
import shlex
import subprocess
import sys
from pathlib import Path

from bridge.errors import BAD_USAGE
from sprite import __version__

_PACKAGE = "sprite-agent"
_ROOT = Path(__file__).resolve().parent.parent.parent


def run(_: argparse.Namespace) -> int:
    """Upgrade Sprite, and print which programs to restart. Return the exit status."""
    command = _upgrade(Path(sys.prefix))
    if command is None:
        sys.stderr.write(
            "sprite update: only a program that uv, pipx or pip installed can be updated. With uvx, start "
            f"`uvx {_PACKAGE}@latest`. In a checkout, pull and start again.\n"
        )
        return BAD_USAGE
    sys.stdout.write(f"$ {shlex.join(command)}\n")
    sys.stdout.flush()
    try:
        status = subprocess.run(command, check=False).returncode
    except FileNotFoundError:
        sys.stderr.write(f"sprite update: {command[0]} installed Sprite and is not found. Add it to PATH.\n")
        return BAD_USAGE
    if status:
        return status
    version = "import sprite; print(sprite.__version__)"
    now = subprocess.run([sys.executable, "-c", version], cwd=sys.prefix, capture_output=True, text=True, check=True)
    if now.stdout.strip() == __version__:
        sys.stdout.write(f"Sprite {__version__} is the newest version.\n")
        return 0
    sys.stdout.write(
        f"Updated Sprite from {__version__} to {now.stdout.strip()}. If it is running, restart it now. The first start "
        "backs up your data.\n"
    )
    return 0


def _upgrade(environment: Path) -> list[str] | None:
    """Return the command that upgrades Sprite in this Python environment, or None if no known tool installed it."""
    if (environment / "uv-receipt.toml").is_file():
        return ["uv", "tool", "upgrade", _PACKAGE]
    if (environment / "pipx_metadata.json").is_file():
        return ["pipx", "upgrade", _PACKAGE]
    if (_ROOT / "pyproject.toml").is_file() or not importlib.util.find_spec("pip"):
        return None
    return [sys.executable, "-m", "pip", "install", "--upgrade", _PACKAGE]
