"""Audit log of operators' actions: actor, time, action, subject. Append-only; `python -m bridge audit` shows it.

Owns the table `audit`. Details never contain secrets. A short action is logged when it was done, a long one before
anything is changed or given out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import msgspec

from bridge.db.database import in_snapshot, in_transaction
from bridge.replicas.restore import moment
from sprite.common import own_secrets

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.db.database import Database, Transaction


#: The actor of commands typed on the bridge's own machine.
CLI: Final = "cli"
#: The action of exporting an archive of an agent's data.
EXPORT: Final = "export"
#: Most lines that are shown at once, the newest ones.
MOST_SHOWN = 10_000
_MOST_CHARACTERS = 500

Detail = str | int | float | bool | None


class Entry(msgspec.Struct, frozen=True):
    """One action; `at` in Unix seconds, `actor` a person's name, `cli`, or `oidc` for the groups of a provider."""

    id: int
    at: float
    actor: str
    action: str
    subject: str
    detail: dict[str, Any]


class Audit:
    """The audit log in the bridge's database."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @in_transaction
    def note(self, tx: Transaction, actor: str, action: str, subject: str, /, **detail: Detail) -> None:
        """Append a line; `detail` is more information for readers. Raise DatabaseError."""
        text = _written(detail)
        number = tx.execute("SELECT coalesce(max(id), 0) + 1 AS next FROM audit").fetchone()["next"]
        at = float(tx.execute("SELECT db_now() AS at").fetchone()["at"])
        line = (number, at, actor, action, own_secrets.without(subject)[:_MOST_CHARACTERS], text)
        tx.execute("INSERT INTO audit (id, at, actor, action, subject, detail_json) VALUES (?, ?, ?, ?, ?, ?)", line)

    @in_snapshot
    def since(self, db: Transaction, at: float = 0.0, most: int = MOST_SHOWN) -> list[Entry]:
        """Return the newest `most` lines since then (Unix seconds), oldest first."""
        rows = db.execute("SELECT * FROM audit WHERE at >= ? ORDER BY id DESC LIMIT ?", (at, most)).fetchall()
        return [_entry(row) for row in reversed(rows)]


def _written(detail: Mapping[str, Detail]) -> str:
    cut = {
        name: own_secrets.without(value)[:_MOST_CHARACTERS] if isinstance(value, str) else value
        for name, value in detail.items()
    }
    return msgspec.json.encode(cut, order="sorted").decode()


def _entry(row: Any) -> Entry:
    detail = msgspec.json.decode(row["detail_json"], type=dict[str, Any])
    return Entry(row["id"], row["at"], row["actor"], row["action"], row["subject"], detail)


def of_what(at: float | None, left_out: str = "") -> dict[str, Detail]:
    """Return the details of an export: its source (machine or store, as of Unix seconds).

    `left_out` describes the missing parts.
    """
    made: dict[str, Detail] = {"left_out": left_out} if left_out else {}
    return made | ({"of": "the machine"} if at is None else {"of": "the store", "as_of": moment(at)})


def told(entry: Entry) -> str:
    """Describe action, subject and details in words, for a table."""
    detail = ", ".join(f"{name} {value}" for name, value in entry.detail.items())
    return f"{entry.action} {entry.subject}" + (f" ({detail})" if detail else "")
