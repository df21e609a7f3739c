"""Reads claude-mem's database, as any of its versions has it, from a copy: its own file is never locked or changed.

Knows its tables, not turns. A database is anybody's: what is named as a table may be a view, a number a text.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: The first bytes of every SQLite database.
MAGIC = b"SQLite format 3\0"
#: Longer texts are cut as they are read; so much of none is kept.
MAX_TEXT = 1_000_000
_MOST_BYTES = 8 * 1024**3
#: A checkpoint moves pages from the journal while they are copied.
_TRIES = 5
_TABLES = {
    "sdk_sessions": ("id", "content_session_id", "claude_session_id", "memory_session_id", "sdk_session_id", "project"),
    "user_prompts": (
        *("id", "session_db_id", "content_session_id", "claude_session_id", "prompt_number", "prompt_text"),
        "created_at_epoch",
    ),
    "observations": (
        *("id", "memory_session_id", "sdk_session_id", "prompt_number", "type", "title", "subtitle", "text"),
        *("narrative", "facts", "files_read", "files_modified", "created_at_epoch"),
    ),
    "session_summaries": (
        *("id", "memory_session_id", "sdk_session_id", "prompt_number", "request", "investigated", "learned"),
        *("completed", "next_steps", "notes", "created_at_epoch"),
    ),
    "tool_uses": (
        *("id", "tool_use_id", "content_session_id", "prompt_number", "tool_name", "tool_input", "tool_response"),
        *("cwd", "agent_id", "created_at_epoch"),
    ),
}
#: Of no use without these.
_NEEDED = ("sdk_sessions", "user_prompts")


class NotClaudeMemError(ValueError):
    """The file is no database of claude-mem's; the message says why."""


class ClaudeMemDB:
    """The rows of one database; a column that a version does not have is None."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._connection.row_factory = sqlite3.Row
        self._connection.text_factory = lambda data: data.decode("utf-8", errors="replace")
        for statement in ("PRAGMA trusted_schema = OFF", "PRAGMA query_only = ON", "PRAGMA cell_size_check = ON"):
            self._connection.execute(statement)
        listed = self._connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'table'").fetchall()
        # A virtual table runs code, and a view is nobody's rows.
        self._tables = {
            row["name"] for row in listed if str(row["sql"]).lstrip().upper().startswith("CREATE TABLE")
        } & set(_TABLES)
        if missing := [name for name in _NEEDED if name not in self._tables]:
            raise NotClaudeMemError(f"has no table {' and no table '.join(missing)}, as claude-mem's has")

    def rows(self, table: str, **equal: Any) -> Iterator[dict[str, Any]]:
        """Yields the rows of a table with these values, in the order in which they were written.

        There are none where this version lacks the table or a column that is asked for.
        """
        if table not in self._tables:
            return
        there = {row["name"] for row in self._connection.execute(f"PRAGMA table_info({table})")}
        if not there >= {"id", *equal}:
            return
        columns = ", ".join(
            f"CASE WHEN typeof({name}) IN ('text', 'blob') THEN substr({name}, 1, {MAX_TEXT}) ELSE {name} END AS {name}"
            if name in there
            else f"NULL AS {name}"
            for name in _TABLES[table]
        )
        where = " AND ".join(f"{name} = ?" for name in equal) or "1"
        sql = f"SELECT {columns} FROM {table} WHERE {where} ORDER BY id"  # noqa: S608 - our own names
        for row in self._connection.execute(sql, list(equal.values())):
            yield {key: row[key] for key in row.keys()}  # noqa: SIM118 - a row is no mapping

    def count(self, table: str) -> int:
        """How many rows a table has."""
        if table not in self._tables:
            return 0
        return int(self._connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])  # noqa: S608 - our names


@contextlib.contextmanager
def open_claude_mem(path: Path) -> Iterator[ClaudeMemDB]:
    """Opens a copy of the database with what its journal holds.

    Raises NotClaudeMemError if it is another's, sqlite3.DatabaseError if it is damaged, OSError if it cannot be copied.
    """
    with tempfile.TemporaryDirectory(prefix="sprite-import-") as folder:
        copy = Path(folder) / "claude-mem.db"
        for left in reversed(range(_TRIES)):
            before = _state(path)
            if sum(size for _, size in before) > _MOST_BYTES:
                raise NotClaudeMemError(f"is larger than {_MOST_BYTES // 1024**3} GiB")
            shutil.copyfile(path, copy)
            journal = path.with_name(f"{path.name}-wal")
            if journal.is_file():
                shutil.copyfile(journal, copy.with_name(f"{copy.name}-wal"))
            if _state(path) == before:
                break
            if not left:
                raise NotClaudeMemError("changed while it was read; stop claude-mem and try again")
        with contextlib.closing(sqlite3.connect(copy, isolation_level=None)) as connection:
            yield ClaudeMemDB(connection)


def _state(path: Path) -> list[tuple[int, int]]:
    """When the file and its journal were written, and how long they are."""
    found = []
    for file in (path, path.with_name(f"{path.name}-wal")):
        with contextlib.suppress(FileNotFoundError):
            about = file.stat()
            found.append((about.st_mtime_ns, about.st_size))
    return found
