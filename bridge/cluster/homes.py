"""The machine and path of each local sprite's workspace. Bridges share a database, but not disks."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bridge.database import DatabaseError
from bridge.hosts.host import HostError

if TYPE_CHECKING:
    from bridge.database import Database

_MACHINE_ID = Path("/etc/machine-id")
_IS_ID = re.compile(r"[0-9a-f]{32}")
# Only the first claim counts. `_MOVE` updates the path after the folder was moved.
_CLAIM = "INSERT INTO homes (sprite, machine, path) VALUES (?, ?, ?) ON CONFLICT (sprite) DO NOTHING"
_LOOK = "SELECT machine, path FROM homes WHERE sprite = ?"
_MOVE = "UPDATE homes SET path = ? WHERE sprite = ? AND machine = ? AND path = ?"


def this_machine() -> str:
    """Return an id that distinguishes this machine from others that share the database."""
    try:
        name = _MACHINE_ID.read_text().strip()
    except (OSError, UnicodeDecodeError):
        name = ""
    return name if _IS_ID.fullmatch(name) else socket.gethostname()


class Homes:
    """Workspace paths of local sprites, stored in the shared database."""

    def __init__(self, database: Database, machine: str) -> None:
        self._database = database
        self._machine = machine

    async def path(self, sprite: str, own: Path, claim: bool) -> Path:
        """Return the sprite's workspace: `own` if it has none yet, which becomes permanent with `claim`.

        Raises HostError if the workspace is on another machine or the database is away.
        """
        try:
            home = await self._home(sprite, own, claim)
        except DatabaseError as error:
            raise HostError("The database is away: nobody can say at the moment where this sprite lives.") from error
        if home is None:
            return own
        if home["machine"] != self._machine:
            raise HostError(
                f"The workspace of {sprite} is on another machine ({home['machine'][:40]}). It can be had where a "
                "bridge runs on that machine.",
                retryable=False,
            )
        path = Path(home["path"])
        if path == own or path.is_dir():
            return path
        if own.is_dir():
            # The data folder was moved.
            await self._database.statement(_MOVE, (str(own), sprite, self._machine, str(path)))
            return own
        if path.parent.is_dir():
            # Not created yet, or lost; the host's guard knows which.
            return path
        # The whole data folder is gone, perhaps only because its disk is not mounted.
        raise HostError(
            f"The workspace of {sprite} was at {path} on this machine, and that folder is not there any more: put it "
            f"back, or make {path.parent} and say `python -m bridge restore {sprite}`.",
            retryable=False,
        )

    async def _home(self, sprite: str, own: Path, claim: bool) -> Any:
        rows = await self._database.statement(_LOOK, (sprite,))
        if not rows and claim:
            await self._database.statement(_CLAIM, (sprite, self._machine, str(own)))
            rows = await self._database.statement(_LOOK, (sprite,))
        return rows[0] if rows else None
