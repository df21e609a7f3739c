"""Bridge leases: the newest lease that this sprite has seen, and the connections that hold it.

If several bridges share the sprites, each new owner of a sprite has a larger epoch. A bridge that was paused and
does not yet know of its successor is refused here. Clients without a lease (a single bridge, a terminal) are not
affected.

Bridges count epochs from 1, or continue from the time in seconds if their database was reset. A lease far beyond
the current time is refused: stored as the newest, it would lock out every bridge. So a larger valid epoch always
exists a second later, and a refused bridge receives the newest epoch.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Final

from sprite.errors import FatalPeerError, StaleOwnerError
from sprite.protocol.replication import EPOCHS_AHEAD, Lease
from sprite.workspace.database import WorkspaceDB

log = logging.getLogger(__name__)

#: Start of 2026 in Unix seconds: lower bound for a machine whose clock is not set yet.
_EARLIEST_NOW: Final = 1_767_225_600.0
#: Limit for the bridge's name, which is stored with the newest lease.
_LONGEST_OWNER = 200
_REPLACED = "Another bridge has this sprite now; this connection is of an older lease (epoch {}, now {})."
_STALE = "Another bridge has this sprite: the lease has epoch {}, and one with epoch {} was here."
_TWO_OWNERS = "Another bridge has this sprite by a lease with the same epoch, {}."

#: Ends a connection with an error; its remaining messages are not started.
End = Callable[[FatalPeerError], None]


class Leases:
    """Store the newest lease durably, and track its connections."""

    def __init__(self, workspace: WorkspaceDB, newest: Lease | None, clock: Callable[[], float] = time.time) -> None:
        self._workspace = workspace
        self._clock = clock
        if newest is not None and newest.epoch > self._largest():
            # A client with the token sent it before such leases were refused.
            log.warning("a lease was kept that is no bridge's: the next one is taken", extra={"epoch": newest.epoch})
            newest = None
        self._newest = newest
        self._connected: set[End] = set()
        self._lock = asyncio.Lock()

    async def enter(self, lease: Lease, end: End) -> None:
        """Admit a connection by its lease; `end` is called when a newer lease arrives.

        Raises FatalPeerError for a lease that is invalid or not the newest. A newer lease is on disk when this
        returns, and older connections start no more messages.
        """
        self._check(lease)
        async with self._lock:
            newest = self._newest
            if newest is not None and lease.epoch < newest.epoch:
                raise StaleOwnerError(_STALE.format(lease.epoch, newest.epoch), newest.epoch)
            if newest is not None and lease.epoch == newest.epoch and lease.owner != newest.owner:
                raise StaleOwnerError(_TWO_OWNERS.format(lease.epoch), newest.epoch)
            if newest is None or lease.epoch > newest.epoch:
                await self._workspace.keep_lease(lease)
                self._newest = lease
                self._end_older(newest, lease)
            self._connected.add(end)

    def leave(self, end: End) -> None:
        """Remove a connection."""
        self._connected.discard(end)

    def _end_older(self, older: Lease | None, newest: Lease) -> None:
        if older is None:
            return
        ended, self._connected = self._connected, set()
        if ended:
            log.info("another bridge has this sprite now", extra={"epoch": newest.epoch, "count": len(ended)})
        for end in ended:
            end(StaleOwnerError(_REPLACED.format(older.epoch, newest.epoch), newest.epoch))

    def _largest(self) -> int:
        """Return the largest epoch that a bridge can have reached by now."""
        return int(max(self._clock(), _EARLIEST_NOW)) + EPOCHS_AHEAD

    def _check(self, lease: Lease) -> None:
        if not 0 < lease.epoch <= self._largest():
            words = "A lease's epoch is counted from 1, or from the time in seconds: no bridge has this one."
            raise FatalPeerError(words, code="bad_payload")
        _check_owner(lease)


def _check_owner(lease: Lease) -> None:
    if not 0 < len(lease.owner) <= _LONGEST_OWNER or not lease.owner.isprintable():
        words = f"A lease names its bridge by 1 to {_LONGEST_OWNER} printable characters."
        raise FatalPeerError(words, code="bad_payload")
