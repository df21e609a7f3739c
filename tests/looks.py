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
    """Return every file below a folder with its content; unlike `rglob`, this tolerates files that vanish meanwhile."""
    found = {}
    for parent, _, names in os.walk(folder):
        for path in (Path(parent, name) for name in sorted(names)):
            with contextlib.suppress(FileNotFoundError):
                if path.is_file():
                    found[path] = path.read_bytes()
    return found


def rows(path: Path, sql: str, parameters: tuple[Any, ...] = ()) -> list[dict[str, Any]]:
    """Query a database of the sprite, beside it."""
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    connection.row_factory = sqlite3.Row
    try:
        return [dict(row) for row in connection.execute(sql, parameters)]
    finally:
        connection.close()


def observations(workspace: Path) -> list[dict[str, Any]]:
    """Return the log's turns, oldest first."""
    return rows(workspace / ".os/memory/transcript.db", "SELECT * FROM observations ORDER BY id")


def dump(path: Path) -> dict[str, list[tuple[Any, ...]]]:
    """Return every table of a database with all its rows, for byte-by-byte comparison."""
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        names = [r[0] for r in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]
        return {name: sorted(connection.execute(f'SELECT * FROM "{name}"'), key=repr) for name in names}
    finally:
        connection.close()


async def eventually(condition: Callable[[], bool], what: str, patience: float = PATIENCE) -> None:
    """Poll, with a bound: only for conditions without an event. The condition may become false again."""
    began = time.monotonic()
    try:
        async with asyncio.timeout(patience):
            while not condition():  # noqa: ASYNC110 - another process cannot set our event
                # A check may read a database or all of /proc: after a long wait it runs less often.
                await asyncio.sleep(min(0.25, max(0.05, (time.monotonic() - began) / 10)))
    except TimeoutError:
        raise AssertionError(what) from None
