"""Read databases and wait for conditions, without importing a server."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.in_thread import PATIENCE


def files_below(folder: Path) -> dict[Path, bytes]:
    """Every file below a folder and its content; unlike `rglob`, this passes over what vanishes meanwhile."""
    found = {}
    for parent, _, names in os.walk(folder):
        for path in (Path(parent, name) for name in sorted(names)):
            with contextlib.suppress(FileNotFoundError):
                if path.is_file():
                    found[path] = path.read_bytes()
    return found


def rows(path: Path, sql: str, parameters: tuple[Any, ...] = ()) -> list[dict[str, Any]]:
    """Rows of a database of the sprite's, read beside it."""
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    connection.row_factory = sqlite3.Row
    try:
        return [dict(row) for row in connection.execute(sql, parameters)]
    finally:
        connection.close()


def observations(workspace: Path) -> list[dict[str, Any]]:
    """The log's turns, oldest first."""
    return rows(workspace / ".os/memory/transcript.db", "SELECT * FROM observations ORDER BY id")


def dump(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Every table of a database with all its rows: what "byte for byte" compares."""
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        names = [r[0] for r in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        return {name: sorted(connection.execute(f'SELECT * FROM "{name}"'), key=repr) for name in names}
    finally:
        connection.close()


async def eventually(condition: Callable[[], bool], what: str, patience: float = PATIENCE) -> None:
    """Polls, with a bound: only where nothing says when it has happened. What was true once need not be so any more."""
    began = time.monotonic()
    try:
        async with asyncio.timeout(patience):
            while not condition():  # noqa: ASYNC110 - another process cannot set an event of ours
                # A look may read a database or all of /proc: after a long wait it is taken less often.
                await asyncio.sleep(min(0.25, max(0.05, (time.monotonic() - began) / 10)))
    except TimeoutError:
        raise AssertionError(what) from None
