"""Files of other programs: recorded from Codex CLI 0.169, Gemini CLI 0.61 and claude-mem 13.25, and adapted.

The programs ran with a fake model; their own long texts were cut, and folders renamed.
"""

from __future__ import annotations

import json
import sqlite3
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from sprite.cli.import_logs import import_logs
from sprite.config import Settings
from tests.fake_secrets import fake_secrets
from tests.harness import ROOT

RECORDED = ROOT / "tests/fixtures/elsewhere"
CODEX = RECORDED / "codex"
GEMINI = RECORDED / "gemini"
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


def message(sender: str, text: str, number: int, **more: Any) -> dict[str, Any]:
    """Return a message of a claude.ai export, in the format of its help page and of exports of 2025."""
    at = f"2026-01-10T10:{number:02}:00.123456Z"
    return {
        "uuid": f"00000000-0000-4000-8000-{number:012}",
        "text": text,
        "content": [{"start_timestamp": at, "stop_timestamp": at, "type": "text", "text": text, "citations": []}],
        "sender": sender,
        "created_at": at,
        "updated_at": at,
        "attachments": [],
        "files": [],
        **more,
    }


def conversation(*messages: dict[str, Any], number: int = 1, **more: Any) -> dict[str, Any]:
    return {
        "uuid": f"11111111-0000-4000-8000-{number:012}",
        "name": "Tea",
        "created_at": f"2026-01-{number:02}T10:00:00.000000Z",
        "updated_at": f"2026-01-{number:02}T11:00:00.000000Z",
        "account": {"uuid": "22222222-0000-4000-8000-000000000000"},
        "chat_messages": list(messages),
        **more,
    }


def export(path: Path, *conversations: dict[str, Any], **files: str) -> Path:
    """Make a zip as claude.ai sends it."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("users.json", "[]")
        archive.writestr("conversations.json", json.dumps(list(conversations)))
        for name, text in files.items():
            archive.writestr(name, text)
    return path


async def imported(
    workspace: Path,
    *paths: Path,
    capsys: pytest.CaptureFixture[str],
    dry_run: bool = False,
    kind: str | None = None,
) -> dict[str, Any]:
    """Return an import's output for programs, with its exit code as `code`."""
    code = await import_logs(Settings(workspace), list(paths), dry_run=dry_run, as_json=True, kind=kind)
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    return {**told, "code": code}


def calls(turn: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the tool calls of a turn in the log."""
    found: list[dict[str, Any]] = json.loads(turn["tool_calls_json"])
    return found
