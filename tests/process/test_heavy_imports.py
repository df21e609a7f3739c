"""Slow SDK imports (about one second) happen after the listener opens."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.forking import ROOT

HEAVY = {"claude_agent_sdk", "httpx2", "mcp", "starlette", "sprites", "authlib", "rich"}


@pytest.mark.parametrize("modules", ["sprite.server, sprite.__main__", "bridge.app, bridge.__main__"])
def test_start_imports_no_sdk(modules: str) -> None:
    code = f"import sys, {modules}; print(*sorted({HEAVY!r} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
