"""Read claude-mem's database of any version from a copy; its own file is never locked or changed.

Knows its tables, not turns. The database is untrusted: a name may belong to a view, and a number may be a text.
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
#: Limit for a text; longer ones are cut while reading.
MAX_TEXT = 1_000_000
_MOST_BYTES = 8 * 1024**3
#: Attempts to copy. A checkpoint may move pages out of the journal during the copy.
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
#: Required tables.
_NEEDED = ("sdk_sessions", "user_prompts")


class NotClaudeMemError(ValueError):
    """The file is not claude-mem's database; the message says why."""


class ClaudeMemDB:
    """Read the rows of one database; a column that its version lacks is None."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._connection.row_factory = sqlite3.Row
        self._connection.text_factory = lambda data: data.decode("utf-8", errors="replace")
        for statement in ("PRAGMA trusted_schema = OFF", "PRAGMA query_only = ON", "PRAGMA cell_size_check = ON"):
            self._connection.execute(statement)
        listed = self._connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'table'").fetchall()
        # A virtual table runs code, and a view has no rows of its own.
        self._tables = {
            row["name"] for row in listed if str(row["sql"]).lstrip().upper().startswith("CREATE TABLE")
        } & set(_TABLES)
        if missing := [name for name in _NEEDED if name not in self._tables]:
            raise NotClaudeMemError(f"has no table {' and no table '.join(missing)}, as claude-mem's has")

    def rows(self, table: str, **equal: Any) -> Iterator[dict[str, Any]]:
        """Yield the rows of a table with these values, in the order in which they were written.

        Yields none if this version lacks the table or a requested column.
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
        """Return the number of rows of a table."""
        if table not in self._tables:
            return 0
        return int(self._connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])  # noqa: S608 - our names


@contextlib.contextmanager
def open_claude_mem(path: Path) -> Iterator[ClaudeMemDB]:
    """Open a copy of the database, including its journal.

    Raises NotClaudeMemError if it is another program's, sqlite3.DatabaseError if it is damaged, OSError if it
    cannot be copied.
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
    """Return the modification times and sizes of the file and its journal."""
    found = []
    for file in (path, path.with_name(f"{path.name}-wal")):
        with contextlib.suppress(FileNotFoundError):
            about = file.stat()
            found.append((about.st_mtime_ns, about.st_size))
    return found
