"""Set up the actions of operators on a data folder, with a bridge or without; opens no other part of a bridge."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from bridge import data_folder
from bridge.database import open_database
from bridge.door.oidc.identities import Identities
from bridge.door.passkeys.store import Passkeys
from bridge.door.people import People
from bridge.operating.acts import Acts, Inside
from bridge.operating.audit import Audit

if TYPE_CHECKING:
    from bridge.config import Settings
    from bridge.database import Database


def people_of(settings: Settings, database: Database) -> People:
    """Return the people; on a bridge that only this machine reaches, the local person is an operator."""
    return People(database, local_operates=settings.is_loopback and settings.public_url is None)


def acts_of(settings: Settings, database: Database, inside: Inside | None = None) -> Acts:
    """Return the actions of operators; `inside` are the connections of the running bridge."""
    return Acts(people_of(settings, database), Identities(database), Passkeys(database), Audit(database), inside)


@asynccontextmanager
async def people_alone(settings: Settings) -> AsyncIterator[Acts]:
    """Yield the actions for a data folder on which no bridge runs; holds its lock meanwhile."""
    with data_folder.owned(settings):
        async with open_database(settings.database) as database:
            yield acts_of(settings, database)
