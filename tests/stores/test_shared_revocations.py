"""Revocation notices between bridges on a Postgres: no payload stops a bridge."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from bridge.auth.admission import Admission, OpenSockets, Revocations
from bridge.auth.people import People
from bridge.auth.tokens import REVOKED
from bridge.db.open import open_database
from tests.in_thread import PATIENCE

ODD = (
    "",
    " ",
    "ada",
    "ada  ",
    "ada zz",
    "ada 0",
    "ada \u0660\u0660",
    "ada 00 00",
    "ada " + "0" * 1000,
    "\u2603" * 1000,
)


async def test_arbitrary_revocation_notice_does_not_stop_bridge(postgres_url: str) -> None:
    died = asyncio.Event()
    async with open_database(postgres_url) as database, asyncio.timeout(PATIENCE):
        people = People(database)
        await people.prepare()
        heard = asyncio.Event()

        class Heard(OpenSockets):
            async def end_person(self, person: str) -> None:
                await super().end_person(person)
                if person == "last":
                    heard.set()

        admission = Admission(people.tokens, lambda: True)
        async with Revocations(database, Heard(), admission, died.set):
            while not heard.is_set() and not died.is_set():
                for text in (*ODD, "last"):
                    await database.statement("SELECT db_notify(?, ?)", (REVOKED, text))
                with suppress(TimeoutError):
                    async with asyncio.timeout(0.2):
                        await heard.wait()
            assert not died.is_set()
