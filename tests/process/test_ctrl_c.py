"""Ctrl-C while modules load ends a command quietly."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.forking import ROOT

#: Press Ctrl-C when a module is about to load, and start a program.
_PRESSED = """
import importlib.abc, os, runpy, signal, sys

class Pressing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == pressed:
            os.kill(os.getpid(), signal.SIGINT)

pressed, *sys.argv[1:] = sys.argv[1:]
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.meta_path.insert(0, Pressing())
"""
_SPRITE = "runpy.run_module('sprite', run_name='__main__')"
_BRIDGE = "runpy.run_module('bridge', run_name='__main__')"
_INSTALLED = "import bridge.cli; sys.exit(bridge.cli.main())"


@pytest.mark.parametrize(
    ("module", "program", "command"),
    [
        ("sprite.config", _SPRITE, "serve"),
        ("sprite.cli.status", _SPRITE, "status"),
        ("bridge.commands.serve", _BRIDGE, "serve"),
        ("bridge.terminal.client", _BRIDGE, "chat"),
        ("sprite.memory.folders", _INSTALLED, "doctor"),
    ],
)
def test_ctrl_c_while_loading_is_quiet(module: str, program: str, command: str, tmp_path: Path) -> None:
    place = "--workspace" if program == _SPRITE or command == "doctor" else "--data"
    ended = subprocess.run(
        [sys.executable, "-c", _PRESSED + program, module, command, place, str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")
    assert not list(tmp_path.iterdir())
