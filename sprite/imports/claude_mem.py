"""Reader for claude-mem's database: prompts, and its model's notes on the work.

The notes are a model's summary of tool output. They are imported as tool results, so that they count neither as the
user's words nor as the agent's.
"""

from __future__ import annotations

import contextlib
import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from sprite.errors import PeerError
from sprite.imports.claude_code_entries import EARLIEST, LATEST, Body, Entry, Voice, heard
from sprite.imports.claude_code_turns import OVER_AFTER_SECONDS
from sprite.imports.observed_turns import logged
from sprite.imports.reader import Surroundings, Tally
from sprite.log.transcript import ImportedTurn
from sprite.privacy.private_text import PrivateText
from sprite.protocol.observing import ObservedTool, ObservedTurn

#: The first bytes of every SQLite database.
MAGIC = b"SQLite format 3\0"
#: Limit for a text; longer ones are cut while reading.
MAX_TEXT = 1_000_000
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
    """Open the database, including its journal, in one snapshot and read-only.

    Raises NotClaudeMemError if it is another program's, sqlite3.DatabaseError if it is damaged or cannot be opened.
    """
    address = f"{path.absolute().as_uri()}?mode=ro"
    with contextlib.closing(sqlite3.connect(address, uri=True, isolation_level=None)) as connection:
        connection.execute("BEGIN")
        yield ClaudeMemDB(connection)


SOURCE = "claude-mem"
NO_PROMPT = "claude-mem kept no prompt of this."
#: Fields of a note that are imported, in this order.
_OF_OBSERVATION = ("title", "subtitle", "narrative", "text", "facts", "files_read", "files_modified")
_OF_SUMMARY = ("request", "investigated", "learned", "completed", "next_steps", "notes")


#: A time above this limit is in milliseconds.
_MOST_SECONDS = 1e11
_PERSONS = frozenset({Voice.PERSON, Voice.COMMAND})


class ClaudeMemReader:
    """Read the database; each agent session that it watched becomes a session."""

    kind = SOURCE

    def recognises(self, path: Path, opening: bytes) -> bool:
        """Return whether this is a database with claude-mem's tables."""
        if not opening.startswith(MAGIC):
            return False
        try:
            with open_claude_mem(path):
                return True
        except (NotClaudeMemError, sqlite3.Error, OSError):
            return False

    def read(self, paths: list[Path], around: Surroundings, tally: Tally) -> Iterator[ImportedTurn]:
        """Yield the turns of each session: one per prompt, and those without a prompt."""
        for path in paths:
            try:
                with open_claude_mem(path) as database:
                    tally.files += 1
                    yield from _all(database, path, around, tally)
            except NotClaudeMemError as error:
                tally.refuse(path, str(error))
            except sqlite3.Error as error:
                tally.refuse(path, f"cannot be read to its end: {error}")
            except OSError as error:
                tally.refuse(path, error)


def _all(database: ClaudeMemDB, path: Path, around: Surroundings, tally: Tally) -> Iterator[ImportedTurn]:
    noted = 0
    for session in database.rows("sdk_sessions"):
        name = _word(session["content_session_id"]) or _word(session["claude_session_id"])
        told = _Session(database, session, name)
        noted += told.noted
        if name in around.own_sessions or around.has_session(name):
            tally.passed_over("claude-mem prompts of sessions that the log has whole", len(told.prompts))
            continue
        private_text = PrivateText()
        for place, project, turn in told.turns(around, path, tally):
            if abs(around.now - turn.at) < OVER_AFTER_SECONDS:
                # Its notes arrive later, because a model writes them.
                tally.open += 1
                continue
            try:
                yield logged(SOURCE, project, turn, private_text, around.now)
            except PeerError as error:
                tally.damage(path, place, str(error))
    if (lost := database.count("observations") + database.count("session_summaries") - noted) > 0:
        tally.passed_over("claude-mem notes of no session", lost)
    around.on_bytes(path.stat().st_size)


class _Session:
    """The database rows of one session."""

    def __init__(self, database: ClaudeMemDB, session: Mapping[str, Any], name: str) -> None:
        self._called = _word(session["project"])
        self._name = name
        self.prompts = list(database.rows("user_prompts", content_session_id=name)) or list(
            database.rows("user_prompts", claude_session_id=name)
        )
        self._tools = _by_prompt(database.rows("tool_uses", content_session_id=name))
        memory = [("memory_session_id", session["memory_session_id"]), ("sdk_session_id", session["sdk_session_id"])]
        ids = [(column, value) for column, value in memory if isinstance(value, str) and value]
        self._notes = _by_prompt(row for column, id_ in ids for row in database.rows("observations", **{column: id_}))
        self._summaries = _by_prompt(
            row for column, id_ in ids for row in database.rows("session_summaries", **{column: id_})
        )
        cwds = (row["cwd"] for rows in self._tools.values() for row in rows if row["cwd"])
        self._folder = next(cwds, None)
        self.noted = sum(map(len, [*self._notes.values(), *self._summaries.values()]))

    def turns(self, around: Surroundings, path: Path, tally: Tally) -> Iterator[tuple[int, str | None, ObservedTurn]]:
        """Yield the prompt's id, the project and the turn: one per prompt, then the rows without a prompt."""
        for prompt in self.prompts:
            at, number = _moment(prompt["created_at_epoch"]), prompt["prompt_number"]
            place = prompt["id"] if isinstance(prompt["id"], int) else 0
            if at is None or not isinstance(number, int):
                tally.damage(path, place, "a prompt without its number or its time")
                continue
            voice, text = _voice(_word(prompt["prompt_text"]))
            is_persons = voice in _PERSONS
            yield place, *self._turn(number, at, around, "" if is_persons else text, user=text if is_persons else "")
        for number in sorted({*self._notes, *self._summaries, *self._tools}, key=repr):
            rows = [*self._notes[number], *self._summaries[number], *self._tools[number]]
            times = [at for row in rows if (at := _moment(row["created_at_epoch"])) is not None]
            if times:
                yield 0, *self._turn(number, min(times), around, NO_PROMPT)
            elif rows:
                tally.damage(path, 0, f"{len(rows)} note(s) without a time")

    def _turn(
        self, number: Any, began: float, around: Surroundings, notice: str, user: str = ""
    ) -> tuple[str | None, ObservedTurn]:
        """Return the project and the turn of a prompt, with its rows, which are removed from the pool."""
        name = f"{self._name}.{number}.{int(began * 1000)}"
        turn = ObservedTurn(name, self._name, began, user, notice=notice, started_at=began)
        used = self._tools.pop(number, [])
        for row in used:
            _add_call(turn, _word(row["tool_use_id"]) or f"tool-{row['id']}", _word(row["tool_name"]), row)
            turn.tools[-1].input = _value(row["tool_input"])
            turn.tools[-1].result = _value(row["tool_response"])
        for tool, rows, fields in (
            ("claude-mem observation", self._notes.pop(number, []), _OF_OBSERVATION),
            ("claude-mem summary", self._summaries.pop(number, []), _OF_SUMMARY),
        ):
            for row in rows:
                _add_call(turn, f"{tool} {row['id']}".replace(" ", "-"), tool, row)
                turn.tools[-1].result = _told(row, fields)
        folder = next((row["cwd"] for row in used if row["cwd"]), self._folder)
        project = around.project_of(folder)
        if project is None and self._called:
            # claude-mem has only the folder's name, which does not identify it.
            called = f"claude-mem calls the project {self._called[:200]!r}."
            turn.notice = f"{turn.notice}\n{called}" if turn.notice else called
        return project, turn


def _add_call(turn: ObservedTurn, key: str, tool: str, row: Mapping[str, Any]) -> None:
    turn.tools.append(ObservedTool(tool, key))
    turn.at = max(turn.at, _moment(row["created_at_epoch"]) or 0.0)


def _by_prompt(rows: Iterator[dict[str, Any]]) -> dict[Any, list[dict[str, Any]]]:
    found: dict[Any, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        found[row["prompt_number"]].append(row)
    return found


def _word(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _moment(value: Any) -> float | None:
    """Return the Unix seconds of a time in seconds or milliseconds, or None if it is invalid."""
    if not isinstance(value, int | float):
        return None
    seconds = value / 1000 if abs(value) > _MOST_SECONDS else float(value)
    return seconds if EARLIEST.timestamp() <= seconds < LATEST.timestamp() else None


def _voice(text: str) -> tuple[Voice, str]:
    """Return the speaker and text of a prompt: hooks also receive Claude Code's own messages."""
    voice, own = heard(Entry("user", "prompt", datetime.fromtimestamp(0, UTC), "session", Body(text)))
    return voice, own or text


def _told(row: Mapping[str, Any], fields: tuple[str, ...]) -> str:
    """Return a note as text, with one line per field."""
    parts = []
    for field in fields:
        value = _value(row[field])
        if isinstance(value, list):
            value = "; ".join(str(item) for item in value)
        if value:
            shown = value if isinstance(value, str) else json.dumps(value, default=str)
            parts.append(shown if field in {"title", "narrative", "text"} else f"{field.replace('_', ' ')}: {shown}")
    return "\n".join(parts)


def _value(value: Any) -> Any:
    """Return a column's value, parsed if it is JSON."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", errors="replace")
    if isinstance(value, str) and value[:1] in {"{", "[", '"'}:
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            return value
    return value
