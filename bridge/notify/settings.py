"""What each person wants to be told: words, or only that there is something. Owns the table `notify_settings`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from bridge.database import Database, Transaction


class NotifySettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A person's choice. Without `words` a notification says nothing of what it is about.

    That is the default: it passes through services of others, and shows on a locked screen.
    """

    words: bool = False


class NotifySettingsStore:
    """Reads and writes the choice of each person."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def of(self, person: str) -> NotifySettings:
        """The person's choice, the default where they made none. DatabaseError where the disk refuses."""

        def find(db: Transaction) -> NotifySettings:
            row = db.execute("SELECT words FROM notify_settings WHERE person = ?", (person,)).fetchone()
            return NotifySettings() if row is None else NotifySettings(words=bool(row["words"]))

        return await self._database.read(find)

    async def wants_words(self, person: str) -> bool:
        """Whether the person's notifications say what they are about. DatabaseError where the disk refuses."""
        return (await self.of(person)).words

    async def change(self, person: str, settings: NotifySettings) -> None:
        """Keeps a choice. DatabaseError where the disk refuses."""
        await self._database.statement(
            "INSERT INTO notify_settings VALUES (?, ?) ON CONFLICT (person) DO UPDATE SET words = excluded.words",
            (person, int(settings.words)),
        )
