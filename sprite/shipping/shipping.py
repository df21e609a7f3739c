"""Replication: resume where the replica left off, or start over, and report what was forgotten."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

import msgspec

from sprite.config import Settings
from sprite.database.memory import MemoryDB
from sprite.database.ship_changes import ROWS, TOMBSTONES, Followed, is_position
from sprite.database.transcript import TranscriptDB, read_transcript
from sprite.database.workspace import WorkspaceDB, read_workspace
from sprite.errors import PeerError
from sprite.protocol.shipping import Ship, Shipped
from sprite.shipping.looks import Looks
from sprite.shipping.messages import PATHS
from sprite.shipping.session import Session, Source

log = logging.getLogger(__name__)

#: Limit for waiting at shutdown until the replica has the last data.
_FINISH_SECONDS = 5.0
#: Interval of the check whether the replica has carried out its forgets.
CONFIRMED_SECONDS = 0.1


class Shipping:
    """Replicate to one connection at a time: the one that asked last."""

    def __init__(self, settings: Settings, transcript: TranscriptDB, workspace: WorkspaceDB, memory: MemoryDB) -> None:
        self._settings = settings
        self._transcript = transcript
        self._workspace = workspace
        self._memory = memory
        self._state = workspace.ship_state
        self._forgets = 0
        self._session: Session | None = None
        self._peer: object = None
        self._scope: asyncio.Timeout | None = None
        self._beginning = asyncio.Lock()

    async def ship(self, peer: object, asked: Ship, send: Callable[[Shipped], None]) -> None:
        """Replicate to a peer until its task is cancelled.

        Raises PeerError if impossible, or replaced by a newer peer.
        """
        await self._refuse(asked)
        if self._scope is not None:
            self._scope.reschedule(0)
        scope = asyncio.timeout(None)
        try:
            async with scope, self._beginning:
                self._scope = scope
                await self._ship(peer, asked, send)
        except TimeoutError:
            if not scope.expired():
                raise
            raise PeerError("Another connection is being shipped to now.", code="ship_replaced") from None
        finally:
            if self._scope is scope:
                self._scope = None

    async def _ship(self, peer: object, asked: Ship, send: Callable[[Shipped], None]) -> None:
        identity, position = await self._begin(asked)
        async with (
            read_transcript(self._settings.transcript_db) as transcript,
            read_workspace(self._settings.workspace_db) as workspace,
        ):
            sources = (
                Source(transcript.changes, self._transcript.changes),
                Source(workspace.changes, self._workspace.changes),
            )
            looks = Looks(self._settings, self._state, self._memory)
            session = Session(looks, sources, identity, position, asked, send, lambda: self._forgets)
            self._peer, self._session = peer, session
            try:
                await session.run()
            finally:
                session.is_over = True
                self._peer = self._session = None

    async def finish(self) -> None:
        """Send the last data before the sprite ends, if a replica follows; limited in time."""
        if self._session is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(_FINISH_SECONDS):
                    await self._session.finish()

    async def acknowledge(self, peer: object, through: int) -> None:
        """Record the peer's acknowledgement of a position. Raises PeerError if it is not the current peer."""
        if self._session is None or peer is not self._peer:
            raise PeerError("Nothing is being shipped to this connection.", code="not_shipped")
        await self._session.acknowledge(through)

    async def _refuse(self, asked: Ship) -> None:
        """Raise PeerError for an invalid position, or one that this disk does not know any more."""
        if not is_position(asked.after):
            raise PeerError("There is no such position.", code="bad_payload")
        followed = await self._state.followed()
        is_other = asked.log is not None and asked.log != await self._identity(followed)
        if is_other and asked.store is not None and asked.store == followed.store:
            raise PeerError(
                "The store had this log, and has another one now: it was put back to an earlier day.",
                code="store_behind",
            )
        if asked.log != await self._identity(followed) or followed.is_anew or asked.after <= followed.acked:
            return
        if not await self._state.has_issued(asked.after):
            raise PeerError(
                f"The store has this log up to position {asked.after}, and this disk knows it up to {followed.acked}: "
                "an older disk came back. Restore the sprite from the store, or have the store follow it anew, from "
                "its beginning.",
                code="store_ahead",
            )

    async def _identity(self, followed: Followed) -> str:
        return f"{(await self._transcript.mark()).log_id}.{followed.numbering}"

    async def _begin(self, asked: Ship) -> tuple[str, int]:
        """Return the start: the identity of the log with its positions, and the replica's position."""
        followed = await self._state.followed()
        identity = await self._identity(followed)
        goes_on = asked.log == identity and not followed.is_anew and not asked.again
        if goes_on and asked.after >= followed.acked:
            if asked.after > followed.acked:
                await self._state.acknowledge(asked.after, asked.store)
            return identity, asked.after
        if followed.acked or followed.is_anew or asked.again:
            log.info("a store asks for everything")
            await self._state.begin_anew()
            await self._transcript.changes.note_all()
            await self._workspace.changes.note_all()
            has_lost = not asked.again or followed.is_anew or asked.after < followed.acked
            newest = await self._transcript.curations.newest_forget()
            if asked.log == identity and has_lost and newest is not None:
                # It lost acknowledged data, perhaps including a tombstone.
                await self._state.put(TOMBSTONES, {str(newest): '{"rows":{}}'})
            await self._state.begun_anew(await self._state.issue(1))
        return identity, 0

    # --- forgetting ---

    async def forgotten(self) -> None:
        """Send a tombstone for the newest forget to a replica that follows, until it has carried it out."""
        followed = await self._state.followed()
        newest = await self._transcript.curations.newest_forget()
        if newest is None or not (followed.acked or await self._state.has_issued_any()):
            return
        self._forgets += 1
        # Send the current memory files first, so that their old versions are older than the tombstone.
        await Looks(self._settings, self._state, self._memory).look_at_memory()
        rows = {
            PATHS[table]: numbers
            for changes in (self._transcript.changes, self._workspace.changes)
            for table, numbers in (await changes.waiting()).items()
            if table != ROWS
        }
        await self._state.put(TOMBSTONES, {str(newest): msgspec.json.encode({"rows": rows}).decode()})

    async def has_forgotten(self, seconds: float) -> bool:
        """Wait until the replica has confirmed every forget. Return False if it takes longer than this."""
        try:
            async with asyncio.timeout(seconds):
                while await self._state.tombstones():  # noqa: ASYNC110 - its row goes when the store has said so
                    await asyncio.sleep(CONFIRMED_SECONDS)
        except TimeoutError:
            return False
        return True
