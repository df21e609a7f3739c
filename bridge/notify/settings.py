"""Each person's choice of full or short notifications. Owns the table `notify_settings`."""

from __future__ import annotations

import msgspec

from bridge.database import Database, Transaction, in_snapshot


class NotifySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A person's choice. Without `words` a notification does not reveal its subject.

    That is the default, because notifications pass through other services and appear on locked screens.
    """

    words: bool = False


class NotifySettingsStore:
    """Read and write the choice of each person."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @in_snapshot
    def of(self, db: Transaction, person: str) -> NotifySettings:
        """Return the person's choice, or the default. Raise DatabaseError."""
        row = db.execute("SELECT words FROM notify_settings WHERE person = ?", (person,)).fetchone()
        return NotifySettings() if row is None else NotifySettings(words=bool(row["words"]))

    async def wants_words(self, person: str) -> bool:
        """Return whether the person wants full texts. Raise DatabaseError."""
        return (await self.of(person)).words

    async def change(self, person: str, settings: NotifySettings) -> None:
        """Store a choice. Raise DatabaseError."""
        await self._database.statement(
            "INSERT INTO notify_settings VALUES (?, ?) ON CONFLICT (person) DO UPDATE SET words = excluded.words",
            (person, int(settings.words)),
        )
