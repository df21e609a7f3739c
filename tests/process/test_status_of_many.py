"""`bridge status` does not block others, however many people there are."""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from bridge.admin import control
from bridge.admin.operator_actions import people_of
from bridge.app import operated
from bridge.commands import serve
from bridge.db.open import open_database

PEOPLE = 400
#: Minimum number of loop passes during the listing.
PASSES = PEOPLE // 100


async def test_status_of_many_leaves_loop_free(tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    serve.add_arguments(parser)
    settings = serve.settings_of(parser.parse_args(["--data", str(tmp_path / "data")]))
    settings.data.mkdir()
    async with open_database(settings.database) as database:
        await people_of(settings, database).prepare()
        names = [(f"p{number}", float(number)) for number in range(PEOPLE)]
        await database.write(lambda tx: tx.executemany("INSERT INTO people (name, created_at) VALUES (?, ?)", names))
    async with operated(settings) as session:
        asked = asyncio.create_task(control.ask(session, "GET", "/status"))
        passes = 0
        while not asked.done():
            await asyncio.sleep(0.001)
            passes += 1
    assert len(asked.result()["sprites"]) >= PEOPLE
    assert passes > PASSES, "other tasks run meanwhile"
