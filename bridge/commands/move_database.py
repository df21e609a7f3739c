"""`python -m bridge move-database`: copy bridge.db into the Postgres that the bridge will use from now on."""

from __future__ import annotations

import argparse

from bridge.admin.audit import CLI, DONE, Audit
from bridge.commands.reach import add_data, say
from bridge.config import Settings
from bridge.db import data_folder
from bridge.db.open import Transaction, continue_numbers, copy, open_database
from bridge.errors import OperatorError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `move-database`."""
    parser.epilog = (
        "Stop the bridge first, and set BRIDGE_DATABASE_URL to a new database. All of it is moved or nothing. "
        "bridge.db stays as it is, and is not used while BRIDGE_DATABASE_URL is set."
    )
    add_data(parser)
    parser.set_defaults(work=_move)


async def _move(settings: Settings, _arguments: argparse.Namespace) -> int:
    if not isinstance(settings.database, str):
        raise OperatorError(
            "BRIDGE_DATABASE_URL is not set: it says where to, such as postgresql://USER:PASSWORD@HOST/DB."
        )
    path = settings.database_file
    if not path.is_file():
        raise OperatorError(f"There is no {path}: nothing is to be moved. Another folder is named by --data.")

    def move(tx: Transaction) -> dict[str, int]:
        counts = copy(tx, path)
        continue_numbers(tx)
        return counts

    with data_folder.owned(settings):
        # Opening an old file migrates it to the newest version.
        async with open_database(path), open_database(settings.database) as target:
            counts = await target.write(move)
            await Audit(target).note(CLI, "move-database", "all", outcome=DONE)
    moved = ", ".join(f"{count} in {table}" for table, count in counts.items() if count)
    say(f"Moved, rows: {moved or 'none'}.", f"{path} is as it was, and is not used while BRIDGE_DATABASE_URL is set.")
    if settings.store.is_dir():
        say(
            f"What {settings.store} keeps of agents is not moved: each is stored anew when it is next connected. Keep "
            "that folder, and its key, until `python -m bridge status` says `all` for everybody."
        )
    return 0
