"""Fuzz session logs: the import ends without a crash, imported turns are complete, and a second import adds nothing.

The real CLI records the logs for each run, so a seed is valid in that run only; the saved input is complete.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import tempfile
from argparse import Namespace
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from sprite.cli.import_logs import EXIT_NOTHING_READ, EXIT_SOME_REFUSED, import_logs
from sprite.config import Settings
from tests.fuzz.campaign import campaign
from tests.fuzz.inputs import DEEP, ODD_TEXTS, damaged, tampered
from tests.harness import observations, rows
from tests.session_logs import Recorded

ODD_LINES = [
    *(
        b"",
        b"{}",
        b"[]",
        b"null",
        b"NaN",
        b"\0" * 100,
        b"\xff\xfe{}",
        b"[" * DEEP,
        b'{"message":' * DEEP,
        b"x" * 300_000,
    ),
    b'{"type": "user", "type": "assistant", "uuid": "a", "uuid": null}',
    b'{"type": "user", "timestamp": "9999-99-99T99:99:99Z", "message": {"content": "x"}}',
]
NAMES = ["", "agent-x", "..", "a\nb", "é", "x" * 200]


@dataclass(frozen=True, slots=True)
class Log:
    """An imported file: its name without the suffix, and its bytes."""

    name: str
    content: bytes


@st.composite
def logs(draw: st.DrawFn, recorded: list[Log]) -> Log:
    """Generate a recorded log with some lines changed, moved, duplicated or removed."""
    log = draw(st.sampled_from(recorded))
    lines = log.content.split(b"\n")
    start = draw(st.integers(0, max(0, len(lines) - 40)))
    lines = lines[start : start + 40]
    for _ in range(draw(st.integers(0, 6))):
        at = draw(st.integers(0, len(lines) - 1))
        how = draw(st.sampled_from(["tamper", "tamper", "tamper", "damage", "drop", "double", "move", "odd", "text"]))
        line = lines.pop(at)
        if how == "tamper":
            with contextlib.suppress(ValueError, RecursionError):
                line = json.dumps(draw(tampered(json.loads(line)))).encode()
        elif how == "damage":
            line = draw(damaged(line))
        elif how == "odd":
            line = draw(st.sampled_from(ODD_LINES))
        elif how == "text":
            line = json.dumps({**_object(line), "message": {"content": draw(st.sampled_from(ODD_TEXTS))}}).encode()
        kept = {"drop": [], "double": [line, line], "move": []}.get(how, [line])
        lines[at:at] = kept
        if how == "move":
            lines.append(line)
        if not lines:
            lines = [b""]
    ending = draw(st.sampled_from([b"\n", b"\n", b"", b"\r\n"]))
    return Log(draw(st.sampled_from([log.name, log.name, *NAMES])) or log.name, b"\n".join(lines) + ending)


def _object(line: bytes) -> dict[str, Any]:
    with contextlib.suppress(ValueError, RecursionError):
        found = json.loads(line)
        if isinstance(found, dict):
            return found
    return {}


async def run_import(workspace: Path, projects: Path) -> dict[str, Any]:
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(io.StringIO()):
        code = await import_logs(Settings(workspace), Namespace(paths=[projects], dry_run=False, json=True))
    assert code in {0, EXIT_SOME_REFUSED, EXIT_NOTHING_READ}
    facts: dict[str, Any] = json.loads(said.getvalue())
    return facts


async def import_twice(found: list[Log]) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        workspace, projects = folder / "workspace", folder / "projects/project"
        workspace.mkdir()
        projects.mkdir(parents=True)
        for log in found:
            path = projects / f"{log.name}.jsonl"
            path.write_bytes(log.content)
            # A log is ignored for a moment after it was written.
            os.utime(path, (1, 1))
        facts = await run_import(workspace, projects.parent)
        if not facts["files"]:
            return
        turns = observations(workspace)
        assert len(turns) == facts["turns"]
        for turn in turns:
            assert isinstance(json.loads(turn["tool_calls_json"]), list)
            assert turn["timestamp"] > 0
        again = await run_import(workspace, projects.parent)
        assert (again["turns"], observations(workspace)) == (0, turns)
        found_by_search = rows(
            workspace / ".os/memory/transcript.db", "SELECT count(*) AS n FROM observations_fts_docsize"
        )
        assert found_by_search == [{"n": len(turns)}]


def test_arbitrary_session_log_is_imported_safely(recorded: Recorded) -> None:
    real = [Log(path.stem, path.read_bytes()) for path in sorted(recorded.projects.rglob("*.jsonl"))]
    with asyncio.Runner() as runner:
        campaign("logs", st.lists(logs(real), min_size=1, max_size=3), lambda found: runner.run(import_twice(found)))
