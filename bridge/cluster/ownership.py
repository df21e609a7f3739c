"""Which bridge owns a sprite: what the rest of a bridge asks, and the answer where there is one bridge only.

A sprite belongs to one bridge at a time. That bridge talks to it, wakes it and ships its log; each of the others passes
people on to it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from sprite.protocol.shipping import Lease

#: Is told of each sprite whose owner changed, as far as this bridge knows; called in the loop, may not block or raise.
OnChange = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Owner:
    """Another bridge that owns a sprite: where it is reached, and the number of its ownership."""

    address: str
    epoch: int


class NotOwnedError(Exception):
    """This bridge cannot act on a sprite at the moment; in words a person understands."""

    @property
    def for_operators(self) -> str:
        """The same for who runs bridges: says where to ask instead, which is nothing that people need to know."""
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
    """What a bridge owns, and who owns the rest."""

    async def own(self, sprite: str) -> Lease | None:
        """Takes a sprite, or returns the lease that this bridge has; None where there are no leases.

        What nobody uses (`using`) is given back after a while. OwnedElsewhere where another bridge has it,
        NotOwnedError where nobody can say.
        """
        ...

    async def owner_of(self, sprite: str) -> Owner | None:
        """The other bridge that owns it; None where nobody does, or this bridge. NotOwnedError: nobody can say."""
        ...

    def holds(self, sprite: str) -> bool:
        """Whether this bridge owns it surely at this moment."""
        ...

    @property
    def away(self) -> str:
        """Why nobody can say at this moment who owns what, in words for people; "" where that can be said."""
        ...

    def using(self, sprite: str) -> AbstractContextManager[None]:
        """Keeps what is owned while the block runs; does not take it."""
        ...

    def epoch(self, sprite: str) -> int | None:
        """The number of this bridge's ownership; None where it has none, or there are no leases."""
        ...

    async def refused(self, sprite: str, epoch: int, newest: int = 0) -> None:
        """The sprite has seen a larger epoch than the one by which this bridge spoke to it: the lease is dropped.

        `newest` is which, by the sprite's word.
        """
        ...

    async def give_all_back(self) -> None:
        """Lets others have everything at once, and takes nothing any more: the bridge ends."""
        ...

    def add_listener(self, on_change: OnChange) -> None:
        """Tells of each change from here on."""
        ...


class SoleOwnership:
    """One bridge alone owns every sprite, without a lease."""

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
