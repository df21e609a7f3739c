"""Which bridge owns a sprite: the interface for the rest of a bridge, as a single bridge implements it.

A sprite belongs to one bridge at a time. That bridge talks to it, wakes it and replicates its log. All other bridges
forward requests to it.
"""

import re
import socket
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from bridge.db.database import Database, DatabaseError
from bridge.providers.provider import HostError
from sprite.protocol.replication import Lease

#: Called in the event loop for each sprite whose owner changed, as far as this bridge knows. Must not block or raise.
OnChange = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Owner:
    """Another bridge that owns a sprite: its URL and the epoch of its ownership."""

    address: str
    epoch: int


class NotOwnedError(Exception):
    """This bridge cannot act on a sprite at the moment. The message is for people."""

    @property
    def for_operators(self) -> str:
        """Return the message for operators, which may name the bridge to use instead."""
        return str(self)


class OwnedElsewhere(NotOwnedError):  # noqa: N818 - it is an answer: the caller goes on at that address
    """Another bridge owns the sprite."""

    def __init__(self, address: str, epoch: int) -> None:
        super().__init__("Another bridge has this sprite at the moment.")
        self.address = address
        self.epoch = epoch

    @property
    def for_operators(self) -> str:
        """See NotOwnedError."""
        return (
            f"The bridge at {self.address} has this sprite at the moment. Run the command there, or after "
            "that bridge has stopped."
        )


class Ownership:
    """The owners of sprites: a single bridge owns all. `Leases` overrides it where several share a database."""

    async def own(self, sprite: str) -> Lease | None:
        """Make this bridge the owner of a sprite, if it is not yet. Return its lease, None where there are no leases.

        An unused lease (see `using`) is given back after a while. Raises OwnedElsewhere if another bridge owns
        the sprite, and NotOwnedError if the owner is unknown.
        """

    async def owner_of(self, sprite: str) -> Owner | None:
        """Return the other bridge that owns the sprite, or None. Raise NotOwnedError if the owner is unknown."""

    def holds(self, sprite: str) -> bool:
        """Return whether this bridge certainly owns the sprite now."""
        del sprite
        return True

    @property
    def away(self) -> str:
        """Return why owners are unknown at the moment, as a message for people, or "" if they are known."""
        return ""

    def using(self, sprite: str) -> AbstractContextManager[None]:
        """Keep a sprite's lease from counting as unused while the block runs. Does not take a new lease."""
        del sprite
        return nullcontext()

    def epoch(self, sprite: str) -> int | None:
        """Return the number of this bridge's ownership, which grows with each new owner; None without a lease."""

    async def refused(self, sprite: str, epoch: int, newest: int = 0) -> None:
        """Drop the lease `epoch`, because the sprite has seen a larger one and reports it as `newest`."""

    async def give_all_back(self) -> None:
        """Give all leases back at once and take no new ones: the bridge ends."""

    def add_listener(self, on_change: OnChange) -> None:
        """From now on, call `on_change` with each sprite whose owner changes."""


_HOLDERS = "SELECT sprite, address, expires_at - db_now() AS seconds FROM leases WHERE expires_at > db_now()"


@dataclass(frozen=True, slots=True)
class Holder:
    """The bridge that owns a sprite, and the seconds until its lease expires without renewal."""

    address: str
    seconds: float


async def holders(database: Database) -> dict[str, Holder]:
    """Return the owners by sprite, without sprites that no bridge owns. Raises DatabaseError."""
    return {row["sprite"]: Holder(row["address"], float(row["seconds"])) for row in await database.statement(_HOLDERS)}


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
        """Return the sprite's workspace: `own` if none is stored yet; `claim` stores that permanently.

        Raises HostError if the workspace is on another machine or the database is away.
        """
        try:
            rows = await self._database.statement(_LOOK, (sprite,))
            if not rows and claim:
                await self._database.statement(_CLAIM, (sprite, self._machine, str(own)))
                rows = await self._database.statement(_LOOK, (sprite,))
        except DatabaseError as error:
            raise HostError("The database is unreachable, so it is not known where this sprite lives.") from error
        if not rows:
            return own
        home = rows[0]
        if home["machine"] != self._machine:
            raise HostError(
                f"The workspace of {sprite} is on another machine ({home['machine'][:40]}). Use a bridge that "
                "runs on that machine.",
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
            f"The workspace of {sprite} was at {path} on this machine, but that folder does not exist any "
            f"more. Put it back, or create {path.parent} and run `python -m bridge restore {sprite}`.",
            retryable=False,
        )
