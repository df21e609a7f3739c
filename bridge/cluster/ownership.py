"""Which bridge owns a sprite: the interface for the rest of a bridge, and its implementation for a single bridge.

A sprite belongs to one bridge at a time. That bridge talks to it, wakes it and replicates its log. All other bridges
forward requests to it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from sprite.protocol.shipping import Lease

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
        return f"The bridge at {self.address} has this sprite at the moment: do it there, or when that one has ended."


class Ownership(Protocol):
    """The sprites that this bridge owns, and the owners of the others."""

    async def own(self, sprite: str) -> Lease | None:
        """Take a sprite, or return this bridge's lease; None without leases.

        An unused lease (see `using`) is given back after a while. Raises OwnedElsewhere if another bridge owns the
        sprite, and NotOwnedError if the owner is unknown.
        """

    async def owner_of(self, sprite: str) -> Owner | None:
        """Return the other bridge that owns it, or None. Raises NotOwnedError if the owner is unknown."""

    def holds(self, sprite: str) -> bool:
        """Return whether this bridge certainly owns the sprite now."""

    @property
    def away(self) -> str:
        """Return why owners are unknown at the moment, as a message for people, or "" if they are known."""

    def using(self, sprite: str) -> AbstractContextManager[None]:
        """Keep a lease while the block runs. Does not take one."""

    def epoch(self, sprite: str) -> int | None:
        """Return the epoch of this bridge's ownership; None if it has none or there are no leases."""

    async def refused(self, sprite: str, epoch: int, newest: int = 0) -> None:
        """Drop the lease `epoch`, because the sprite has seen a larger one.

        `newest` is the larger epoch as reported by the sprite.
        """

    async def give_all_back(self) -> None:
        """Give all leases back at once and take no new ones: the bridge ends."""

    def add_listener(self, on_change: OnChange) -> None:
        """Call `on_change` for each change from now on."""


class SoleOwnership:
    """Ownership of a single bridge: it owns every sprite, without leases."""

    async def own(self, sprite: str) -> Lease | None:
        """See Ownership."""
        del sprite
        return None

    async def owner_of(self, sprite: str) -> Owner | None:
        """See Ownership."""
        del sprite
        return None

    def holds(self, sprite: str) -> bool:
        """See Ownership."""
        del sprite
        return True

    @property
    def away(self) -> str:
        """See Ownership."""
        return ""

    def using(self, sprite: str) -> AbstractContextManager[None]:
        """See Ownership."""
        del sprite
        return nullcontext()

    def epoch(self, sprite: str) -> int | None:
        """See Ownership."""
        del sprite
        return None

    async def refused(self, sprite: str, epoch: int, newest: int = 0) -> None:
        """See Ownership."""

    async def give_all_back(self) -> None:
        """See Ownership."""

    def add_listener(self, on_change: OnChange) -> None:
        """See Ownership."""
