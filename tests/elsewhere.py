"""A database recorded from claude-mem 13.25 with a fake model; long texts were cut, and folders renamed."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from sprite.cli.import_logs import import_logs
from sprite.config import Settings
from tests.fake_secrets import fake_secrets
from tests.harness import ROOT

RECORDED = ROOT / "tests/fixtures/elsewhere"
HOUSE = "/home/ada/house"
#: Placeholder in the recording for a key that a person typed.
SECRET = fake_secrets(("anthropic",), each=1)[0].secret


def claude_mem(path: Path) -> Path:
    """Make claude-mem's database as the program wrote it, in WAL mode."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(
            (RECORDED / "claude-mem.sql").read_text(encoding="utf-8").replace("A-SECRET-OF-THE-TEST", SECRET)
        )
    connection.close()
    return path


def json_lines(path: Path, values: Iterable[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(value) + "\n" for value in values), encoding="utf-8")
    return path


async def imported(
    workspace: Path,
    *paths: Path,
    capsys: pytest.CaptureFixture[str],
    dry_run: bool = False,
) -> dict[str, Any]:
    """Return an import's output for programs, with its exit code as `code`."""
    code = await import_logs(Settings(workspace), list(paths), dry_run=dry_run, as_json=True)
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    return {**told, "code": code}


def calls(turn: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the tool calls of a turn in the log."""
    found: list[dict[str, Any]] = json.loads(turn["tool_calls_json"])
    return found
