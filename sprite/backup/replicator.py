"""Replication: resume where the replica left off, or start over, and report what was forgotten."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import ClassVar, Final

import msgspec

from sprite.backup import replica_files
from sprite.backup.archive import memory_files
from sprite.common.tasks import off_loop
from sprite.config import Settings
from sprite.errors import PeerError
from sprite.forget.plan import Plan
from sprite.log.transcript import TranscriptDB, read_transcript
from sprite.protocol.replication import Lacks, Packer, Ship, Shipped, ShippedChunk
from sprite.protocol.shapes import Place
from sprite.storage.changes import ROWS, TOMBSTONES, ChangedRow, Followed, ShipChanges, is_position, shipped_tables
from sprite.workspace.database import WorkspaceDB, read_workspace

log = logging.getLogger(__name__)

#: Limit for unacknowledged data.
MOST_UNACKED_BYTES: Final = 4 * 1024 * 1024
MOST_UNACKED: Final = 32
#: Interval of the check for changes.
POLL_SECONDS: Final = 0.5
#: Limit for one read of the log.
_READ_BYTES: Final = 1024 * 1024
_FINISH_POLL_SECONDS = 0.02


@dataclass(slots=True)
class Source:
    """A database whose rows are sent: `reader` reads them, `owner` writes; `sent` is the newest entry that was sent."""

    reader: ShipChanges
    owner: ShipChanges
    sent: int = 0


@dataclass(frozen=True, slots=True)
class _Sent:
    """A message that the replica has not acknowledged yet, with everything to record once it does."""

    through: int
    size: int
    source: Source | None = None
    change: int = 0
    rows: Sequence[int] = ()
    files: dict[str, replica_files.FileFacts] = field(default_factory=dict)
    forgets: int = 0


class Session:
    """Replicate to one connection. `send` queues a message, `forgets` counts the forgets requested by this process."""

    def __init__(
        self,
        looks: replica_files.Looks,
        sources: tuple[Source, Source],
        identity: str,
        position: int,
        asked: Ship,
        send: Callable[[Shipped], None],
        forgets: Callable[[], int],
    ) -> None:
        self._looks = looks
        self._state = looks.state
        self._transcript, self._workspace = sources
        self._identity = identity
        self._through = position
        self._send = send
        self._forgets = forgets
        self._packer = Packer() if asked.packed else None
        self._unacked: deque[_Sent] = deque()
        self._acked = asyncio.Event()
        self._acking = asyncio.Lock()
        self._acks = 0
        self._active_at = 0.0
        self._is_whole = False
        #: The count of forgets at the last scan. A later forget may have deleted chunks of the replica.
        self._looked_after = 0
        self._asked = asked
        #: Whether `run` has ended.
        self.is_over = False
        self._rounds = 0
        #: The last round at whose end everything was sent.
        self._whole_round = 0
        self._hurries = False

    async def run(self) -> None:
        """Send all data that the replica lacks, then each change, until cancelled."""
        await self._looks.begin(self._asked.again)
        await self._look_at_files()
        while True:
            self._rounds += 1
            acks = self._acks
            await self._looks.look_at_memory()
            if await self._ship_rows() or await self._ship_files() or await self._rebase():
                continue
            if self._acks != acks:
                # An acknowledgement may create more rows to send, such as the row of a file.
                continue
            is_due = self._looks.is_due(self._active_at) or (
                self._hurries and not self._looks.is_fresh(self._active_at)
            )
            if is_due and not self._unacked:
                await self._look_at_files()
                continue
            if not self._is_whole and not self._unacked and self._looks.is_fresh(self._active_at):
                self._send(Shipped(self._identity, self._through, [], whole=True))
                self._is_whole = True
            if self._is_whole:
                self._whole_round = self._rounds
            self._acked.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await self._acked.wait()

    async def finish(self) -> None:
        """Wait until everything that was written before the call is sent."""
        self._hurries, self._is_whole, begun = True, False, self._rounds
        while self._whole_round <= begun and not self.is_over:
            self._acked.set()
            await asyncio.sleep(_FINISH_POLL_SECONDS)

    async def acknowledge(self, through: int) -> None:
        """Record that the replica has everything up to a position. Raises PeerError for an unsent one."""
        if not 0 <= through <= self._through:
            raise PeerError("No replica data was sent up to that position.", code="not_shipped")
        async with self._acking:
            done = [sent for sent in self._unacked if sent.through <= through]
            for sent in done:
                if sent.files and sent.forgets == self._forgets():
                    await self._looks.note_files(sent.files)
            for source in (self._transcript, self._workspace):
                if (newest := max((sent.change for sent in done if sent.source is source), default=0)) > 0:
                    await source.owner.drop(newest)
            if rows := [row for sent in done for row in sent.rows]:
                await self._state.let_go(rows)
            if done:
                await self._state.acknowledge(done[-1].through, self._asked.store)
            # Only after all of this is recorded, because an empty queue means that everything was sent.
            for _ in done:
                self._unacked.popleft()
            self._acks += len(done)
        self._acked.set()

    # --- rows ---

    async def _ship_rows(self) -> bool:
        """Send changed rows; return False if there were none."""
        # In this order, so that a row is never sent before the log row that it follows from.
        ends = {id(source): await source.reader.newest() for source in (self._workspace, self._transcript)}
        before = self._through
        for source in (self._transcript, self._workspace):
            end = ends[id(source)]
            while source.sent < end:
                rows = await source.reader.after(source.sent, end, size=_READ_BYTES)
                if not rows:
                    # The remaining rows changed again, and come later.
                    source.sent = end
                    break
                await self._ship(source, rows)
                source.sent = rows[-1].change
        return self._through > before

    async def _ship(self, source: Source, rows: Sequence[ChangedRow]) -> None:
        if any(row.table != ROWS for row in rows):
            # The results of a scan do not trigger the next one, or a constantly changing file would cause endless
            # scans.
            self._active_at = time.monotonic()
        items = await asyncio.to_thread(self._items, rows)
        numbers = {row.change: row.id for row in rows if row.table == ROWS}
        for held, chunks in replica_files.in_messages(items):
            if chunks:
                await self._send_chunks([replica_files.chunk_of(chunk) for chunk in chunks])
            else:
                await self._send_rows(source, held, [numbers[each.change] for each in held if each.change in numbers])

    def _items(self, rows: Sequence[ChangedRow]) -> list[replica_files.Item]:
        items = []
        memory = memory_files(self._looks.settings) if any(row.table == ROWS for row in rows) else {}
        for changed in rows:
            if changed.table != ROWS:
                items.append(
                    replica_files.item(changed.change, replica_files.PATHS[changed.table], changed.id, changed.row)
                )
            elif changed.row is not None:
                part, name, facts = str(changed.row["part"]), str(changed.row["name"]), changed.row["facts"]
                row = self._looks.row(part, name, None if facts is None else str(facts), memory)
                items.append(replica_files.item(changed.change, part, name, row))
        return items

    async def _send_rows(self, source: Source, items: Sequence[replica_files.Item], numbers: Sequence[int]) -> None:
        size = sum(each.size for each in items)
        await self._room(size)
        first = await self._state.issue(len(items))
        for at, each in enumerate(items):
            each.row.position = first + at
        through = first + len(items) - 1
        self._unacked.append(_Sent(through, size, source, items[-1].change, numbers))
        await self._put(Shipped(self._identity, through, [each.row for each in items]), size)

    async def _send_chunks(
        self, chunks: list[ShippedChunk], files: dict[str, replica_files.FileFacts] | None = None
    ) -> None:
        size = sum(map(replica_files.size_of, chunks))
        await self._room(size)
        # A separate position, so that their acknowledgement is recognised.
        through = await self._state.issue(1)
        self._unacked.append(_Sent(through, size, files=files or {}, forgets=self._looked_after))
        await self._put(Shipped(self._identity, through, [], chunks), 0)

    async def _put(self, shipped: Shipped, size: int) -> None:
        """Queue one message for the replica; `size` is the length of its rows, which decides where they are packed."""
        self._through = shipped.through
        self._is_whole = False
        self._send(shipped if self._packer is None else await off_loop(size, self._packer.pack, shipped))

    async def _room(self, size: int) -> None:
        while self._unacked and (
            len(self._unacked) >= MOST_UNACKED or sum(sent.size for sent in self._unacked) + size > MOST_UNACKED_BYTES
        ):
            self._acked.clear()
            await self._acked.wait()

    async def _rebase(self) -> bool:
        """After all was sent again, queue the position at which that began, if there is one: older rows are dropped."""
        baseline = (await self._state.followed()).baseline
        if baseline is None:
            return False
        await self._state.put(replica_files.MANIFEST, {"baseline": f'{{"position":{baseline}}}'})
        await self._state.rebased()
        return True

    # --- files ---

    async def _look_at_files(self) -> None:
        self._looked_after = self._forgets()
        await self._looks.look_at_files()
        # Tell the replica even without changes: until then it knows the files as of the last scan.
        self._is_whole = False

    async def _ship_files(self) -> bool:
        """Send the contents of changed files; return False if none had. Their rows follow the acknowledgement."""
        files, self._looks.changed = self._looks.changed, []
        contents = replica_files.contents(self._looks.settings.workspace, files, self._looks.known)
        while (read := await asyncio.to_thread(lambda: next(contents, None))) is not None:
            if any(read):
                await self._send_chunks(*read)
            await self._ship_rows()
        return bool(files)


#: Limit for waiting at shutdown until the replica has the last data.
_FINISH_SECONDS = 10.0
#: Interval of the check whether the replica has carried out its forgets.
CONFIRMED_SECONDS = 0.1


class Shipping:
    """Replicate to one connection at a time: the one that asked last."""

    name: ClassVar = "the bridge's replica"

    def __init__(self, settings: Settings, transcript: TranscriptDB, workspace: WorkspaceDB) -> None:
        self._settings = settings
        self._transcript = transcript
        self._workspace = workspace
        self._state = workspace.ship_state
        self._forgets = 0
        self._session: Session | None = None
        self._peer: object = None
        self._scope: asyncio.Timeout | None = None
        self._beginning = asyncio.Lock()

    async def ship(self, peer: object, asked: Ship, send: Callable[[Shipped], None]) -> None:
        """Replicate to a peer until cancelled. Raises PeerError for a bad request, or once a newer peer takes over."""
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
            raise PeerError("Another connection receives the replica data now.", code="ship_replaced") from None
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
            looks = replica_files.Looks(self._settings, self._state)
            session = Session(looks, sources, identity, position, asked, send, lambda: self._forgets)
            self._peer, self._session = peer, session
            try:
                await session.run()
            finally:
                session.is_over = True
                self._peer = self._session = None

    async def finish(self) -> None:
        """Before the sprite ends, send the last data to the replica, if one is connected; limited in time."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_FINISH_SECONDS):
                # A replica may have asked just before.
                while self._scope is not None and self._session is None:  # noqa: ASYNC110 - it begins at once
                    await asyncio.sleep(_FINISH_POLL_SECONDS)
                if self._session is not None:
                    await self._session.finish()

    async def acknowledge(self, peer: object, through: int) -> None:
        """Record the peer's acknowledgement of a position. Raises PeerError if it is not the current peer."""
        if self._session is None or peer is not self._peer:
            raise PeerError("This connection does not receive replica data.", code="not_shipped")
        await self._session.acknowledge(through)

    async def _refuse(self, asked: Ship) -> None:
        """Raise PeerError if the requested position is invalid, or this disk does not know it (any more)."""
        if not is_position(asked.after):
            raise PeerError("There is no such position.", code="bad_payload")
        followed = await self._state.followed()
        is_other = asked.log != await self._identity(followed)
        if is_other and None not in {asked.log, asked.store} and asked.store == followed.store:
            raise PeerError(
                "The store had this log before, but has another one now: it was restored from a backup.",
                code="store_behind",
            )
        if is_other or followed.is_anew or asked.after <= followed.acked:
            return
        if not await self._state.has_issued(asked.after):
            raise PeerError(
                f"The store has this log up to position {asked.after}, but this disk only up to {followed.acked}: "
                "an older disk was restored. Restore the sprite from the store, or let the store replicate it "
                "from the beginning.",
                code="store_ahead",
            )

    async def _identity(self, followed: Followed) -> str:
        return f"{(await self._transcript.mark()).log_id}.{followed.numbering}"

    async def _begin(self, asked: Ship) -> tuple[str, int]:
        """Return where to start: the identity of the log and its numbering, and the position after which to send."""
        followed = await self._state.followed()
        identity = await self._identity(followed)
        goes_on = asked.log == identity and not followed.is_anew
        if goes_on and asked.after >= followed.acked:
            if asked.after > followed.acked:
                await self._state.acknowledge(asked.after, asked.store)
            if asked.again is not None:
                await self._note_again(asked.again)
            return identity, asked.after
        if followed.acked or followed.is_anew:
            log.info("a store asks for everything")
            await self._state.begin_anew()
            await self._transcript.changes.note_all()
            await self._workspace.changes.note_all()
            newest = await self._transcript.curations.newest_forget()
            if asked.log == identity and newest is not None:
                # It lost acknowledged data, perhaps including a tombstone.
                await self._state.put(TOMBSTONES, {str(newest): '{"rows":{}}'})
            await self._state.begun_anew(await self._state.issue(1))
        return identity, 0

    async def _note_again(self, again: Lacks) -> None:
        for changes, tables in (
            (self._transcript.changes, shipped_tables("transcript.db")),
            (self._workspace.changes, shipped_tables("workspace.db")),
        ):
            paths = {table: replica_files.PATHS[table] for table in tables}
            await changes.note({table: again.rows[path] for table, path in paths.items() if path in again.rows})

    # --- forgetting ---

    async def find(self, made: Plan) -> list[Place]:
        """Return the replica as a place with forgotten text until it has confirmed all forgets (`forget.Store`)."""
        waits = made.is_done and await self._state.tombstones()
        return [Place(self.name, "it has not confirmed yet that it forgot")] if waits else []

    async def remove(self, _: Plan) -> None:
        """Queue a tombstone for the newest forget, which tells the replica to delete older versions of its rows."""
        followed = await self._state.followed()
        newest = await self._transcript.curations.newest_forget()
        if newest is None or not (followed.acked or await self._state.has_issued_any()):
            return
        self._forgets += 1
        # Send the current memory files first, so that their old versions are older than the tombstone.
        await replica_files.Looks(self._settings, self._state).look_at_memory()
        rows = {
            replica_files.PATHS[table]: numbers
            for changes in (self._transcript.changes, self._workspace.changes)
            for table, numbers in (await changes.waiting()).items()
            if table != ROWS
        }
        await self._state.put(TOMBSTONES, {str(newest): msgspec.json.encode({"rows": rows}).decode()})

    async def has_forgotten(self, seconds: float) -> bool:
        """Wait at most this many seconds for the replica to confirm all forgets; return whether it did."""
        try:
            async with asyncio.timeout(seconds):
                while await self._state.tombstones():  # noqa: ASYNC110 - its row goes when the store has said so
                    await asyncio.sleep(CONFIRMED_SECONDS)
        except TimeoutError:
            return False
        return True
