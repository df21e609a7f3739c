"""Audit log of operators' actions: actor, time, action, subject. Append-only; `python -m bridge audit` shows it.

Owns the table `audit`. Each line carries a hash over itself and the line before (`chain`), so changed or removed
lines are detected, except lines removed at the end. Details never contain secrets.

A short action is one line, written when it was done. A long one has two: at its beginning, before anything is changed
or given out, and at its end (`outcome`). If the second is missing, the bridge was killed meanwhile.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec

from bridge.cluster.ownership import NotOwnedError
from bridge.db.open import DatabaseError, in_snapshot, in_transaction
from bridge.errors import BridgeError
from bridge.providers.provider import HostError
from bridge.replicas.restore import moment
from sprite.common import own_secrets

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Mapping

    from bridge.db.open import Database, Transaction


log = logging.getLogger(__name__)

#: The actor of commands typed on the bridge's own machine.
CLI: Final = "cli"
#: The action of a start with changed settings.
SETTINGS: Final = "settings"
#: The action of exporting an archive of an agent's data.
EXPORT: Final = "export"
#: Most lines that are shown at once, the newest ones.
MOST_SHOWN = 10_000
_MOST_CHARACTERS = 500
#: Outcomes of an action.
DONE: Final = "done"
_CUT_OFF: Final = "cut off"

Detail = str | int | float | bool | None


class Entry(msgspec.Struct, frozen=True):
    """One action; `at` in Unix seconds, `actor` a person's name, `cli`, or `oidc` for the groups of a provider."""

    id: int
    at: float
    actor: str
    action: str
    subject: str
    detail: dict[str, Any]


class AuditLog(msgspec.Struct, frozen=True):
    """Lines, oldest first; `broken_at` is the first line that was altered, None if none was."""

    entries: list[Entry]
    broken_at: int | None


class Audit:
    """The audit log in the bridge's database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @in_transaction
    def note(self, tx: Transaction, actor: str, action: str, subject: str, /, **detail: Detail) -> None:
        """Append a line; `detail` is more information for readers. Raise DatabaseError."""
        text = _written(detail)
        last = tx.execute("SELECT id, chain FROM audit ORDER BY id DESC LIMIT 1").fetchone()
        number, before = (last["id"] + 1, bytes(last["chain"])) if last is not None else (1, b"")
        at = float(tx.execute("SELECT db_now() AS at").fetchone()["at"])
        line = (number, at, actor, action, own_secrets.without(subject)[:_MOST_CHARACTERS], text)
        tx.execute(
            "INSERT INTO audit (id, at, actor, action, subject, detail_json, chain) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (*line, _chained(before, line)),
        )

    @asynccontextmanager
    async def act(self, actor: str, action: str, subject: str, /, **detail: Detail) -> AsyncIterator[None]:
        """Record the beginning of an action, and its outcome at the end of the block.

        Raise DatabaseError if the beginning cannot be written: then the action must not begin.
        """
        await self.note(actor, action, subject, **detail)
        async with outcome_noted(partial(self.note_outcome, actor, action, subject)):
            yield

    async def note_outcome(self, actor: str, action: str, subject: str, outcome: str) -> None:
        """Record the outcome of an action; only log a database error, because the action is over."""
        try:
            await self.note(actor, action, subject, outcome=outcome)
        except DatabaseError as error:
            log.warning("how an act of an operator's ended could not be noted (%s): %s", error.code, action)

    async def note_settings(self, settings: Mapping[str, Detail]) -> None:
        """Record the settings of a bridge, if they differ from those of the last start."""

        def last(db: Transaction) -> str | None:
            sql = "SELECT detail_json FROM audit WHERE action = ? ORDER BY id DESC LIMIT 1"
            row = db.execute(sql, (SETTINGS,)).fetchone()
            return None if row is None else str(row["detail_json"])

        if await self._database.read(last) != _written(settings):
            await self.note(CLI, SETTINGS, "serve", **settings)

    @in_snapshot
    def since(self, db: Transaction, at: float = 0.0, most: int = MOST_SHOWN) -> AuditLog:
        """Return the newest `most` lines since then (Unix seconds)."""
        rows = db.execute("SELECT * FROM audit WHERE at >= ? ORDER BY id DESC LIMIT ?", (at, most)).fetchall()
        rows.reverse()
        return AuditLog([_entry(row) for row in rows], _first_broken(db, rows))


def _failed(error: Exception) -> str:
    """Return the outcome of a failed action, with the error's message if it is meant for people."""
    for each in (error, error.__cause__):
        if isinstance(each, BridgeError | HostError | NotOwnedError):
            return f"failed: {each}"
    return f"failed: {type(error).__name__}, see the bridge's log"


def _written(detail: Mapping[str, Detail]) -> str:
    cut = {
        name: own_secrets.without(value)[:_MOST_CHARACTERS] if isinstance(value, str) else value
        for name, value in detail.items()
    }
    return msgspec.json.encode(cut, order="sorted").decode()


def _entry(row: Any) -> Entry:
    detail = msgspec.json.decode(row["detail_json"], type=dict[str, Any])
    return Entry(row["id"], row["at"], row["actor"], row["action"], row["subject"], detail)


def _chained(before: bytes, line: tuple[int, float, str, str, str, str]) -> bytes:
    return hashlib.sha256(before + msgspec.json.encode(line)).digest()


def _first_broken(db: Transaction, rows: list[Any]) -> int | None:
    """Return the first of these lines that does not match the hash of the one before it."""
    if not rows:
        return None
    found = db.execute("SELECT id, chain FROM audit WHERE id < ? ORDER BY id DESC LIMIT 1", (rows[0]["id"],)).fetchone()
    number, before = (found["id"], bytes(found["chain"])) if found is not None else (0, b"")
    for row in rows:
        line = (row["id"], row["at"], row["actor"], row["action"], row["subject"], row["detail_json"])
        if row["id"] != number + 1 or bytes(row["chain"]) != _chained(before, line):
            return int(row["id"])
        number, before = row["id"], bytes(row["chain"])
    return None


def of_what(at: float | None, into: str = "", left_out: str = "") -> dict[str, Detail]:
    """Return the details of an export: its source (machine or store, as of Unix seconds) and its target.

    `left_out` describes the missing parts.
    """
    made: dict[str, Detail] = {"into": into} if into else {}
    made |= {"left_out": left_out} if left_out else {}
    return made | ({"of": "the machine"} if at is None else {"of": "the store", "as_of": moment(at)})


def told(entry: Entry) -> str:
    """Describe action, subject and details in words, for a table."""
    detail = ", ".join(f"{name} {value}" for name, value in entry.detail.items())
    return f"{entry.action} {entry.subject}" + (f" ({detail})" if detail else "")


@asynccontextmanager
async def outcome_noted(note: Callable[[str], Coroutine[Any, Any, None]]) -> AsyncIterator[None]:
    """Record the outcome at the end of the block: done, the reason of a failure, or cut off."""
    outcome = _CUT_OFF
    try:
        yield
        outcome = DONE
    except Exception as error:
        outcome = _failed(error)
        raise
    finally:
        await _to_its_end(note(outcome))


async def _to_its_end(work: Coroutine[Any, Any, None]) -> None:
    """Finish the work even if the caller is cancelled meanwhile; then raise the cancellation."""
    task, gone = asyncio.create_task(work, name="audit"), None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            gone = error
    if gone is not None:
        raise gone
