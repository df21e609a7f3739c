"""People, and what operators do with them, on a data folder with a bridge or without: no more of it than that takes."""

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
    """Whoever started a bridge that only this machine reaches owns its folder, too."""
    return People(database, local_operates=settings.is_loopback and settings.public_url is None)


def acts_of(settings: Settings, database: Database, inside: Inside | None = None) -> Acts:
    """What operators do; `inside` is what goes on in the bridge that runs."""
    return Acts(people_of(settings, database), Identities(database), Passkeys(database), Audit(database), inside)


@asynccontextmanager
async def people_alone(settings: Settings) -> AsyncIterator[Acts]:
    """What can be done with the people of a data folder on which no bridge runs; it is owned meanwhile."""
    with data_folder.owned(settings):
        async with open_database(settings.database) as database:
            yield acts_of(settings, database)
