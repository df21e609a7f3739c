"""Restore a sprite from its replica: on a new machine, or in place of the existing one; or export its archive.

After an interruption at any point, either the earlier sprite continues or the next restore finishes; see LostSprites.
"""

import asyncio
import logging
import os
import tempfile
import zipfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Final, Literal

import msgspec

from bridge.cluster.ownership import NotOwnedError, OwnedElsewhere, Ownership
from bridge.db.database import Database, DatabaseError
from bridge.providers.provider import Host, HostError, MachineGoneError, Report, checked_name, with_first
from bridge.replicas.archive import LeftOut, archive_of
from bridge.replicas.sealed_store import SealedStore
from bridge.replicas.sprite_log import SpriteLog
from bridge.replicas.store import StoreError
from sprite.common.tasks import Service, TaskSet
from sprite.protocol.archive import MANIFEST, Manifest
from sprite.protocol.shapes import counted


def moment(at: float) -> str:
    """Format a time (Unix seconds) for people, in UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")


class LostSprites:
    """Look up replicas of lost sprites and unfinished restores. Pass `refuse` to a host as its `guard`."""

    def __init__(self, database: Database, store: SealedStore) -> None:
        self._database = database
        self._store = store

    async def kept_words(self, sprite: str) -> tuple[str, float] | None:
        """Return a description of the replica for a person, and its time; None if there is none or the lookup fails."""
        try:
            at = await self.kept_at(sprite)
        except (StoreError, DatabaseError):
            return None
        return None if at is None else (f"Its replica is as of {moment(at)}.", at)

    async def kept_at(self, sprite: str) -> float | None:
        """Return the time of the replica (Unix seconds), None if there is none. Raise StoreError or DatabaseError."""
        return (await self._store.read(sprite, SpriteLog.newest)).at

    async def refuse(self, sprite: str, is_there: bool) -> None:
        """Raise MachineGoneError if the sprite must be restored first."""
        try:
            is_begun = await self.is_begun(sprite)
            if is_there and not is_begun:
                return
            at = await self.kept_at(sprite)
        except (StoreError, DatabaseError) as error:
            raise HostError(f"The replica of this agent cannot be read: {error}") from error
        if is_begun:
            raise MachineGoneError(
                "A restore of this agent was interrupted. Its replica is unharmed: restore it again.", at
            )
        if at is not None:
            raise MachineGoneError(f"The machine of this agent is gone. Its replica is as of {moment(at)}.", at)

    async def is_begun(self, sprite: str) -> bool:
        """Return whether a restore has moved the earlier sprite away and not finished."""
        sql = "SELECT 1 AS found FROM restores WHERE sprite = ?"
        return await self._database.read(lambda tx: tx.execute(sql, (sprite,)).fetchone() is not None)

    async def begin(self, sprite: str) -> None:
        """Record that a restore began, so the sprite must not be used before `end`."""
        sql = "INSERT INTO restores(sprite, begun_at) VALUES (?, db_now()) ON CONFLICT (sprite) DO NOTHING"
        await self._database.statement(sql, (sprite,))

    async def end(self, sprite: str) -> None:
        """Record that the sprite's restore has finished."""
        await self._database.statement("DELETE FROM restores WHERE sprite = ?", (sprite,))


log = logging.getLogger(__name__)

_TURNS: Final = "log/observations.jsonl"
_PREFIX: Final = "restore-"
#: Adds a line to the audit log: actor, action, subject, and details.
Note = Callable[..., Awaitable[None]]

#: Advice for users of the command line.
SAY_OVER: Final = "Use --over to replace it by the replica. The existing agent is moved aside, not deleted."


class RestoreRefusedError(StoreError):
    """A restore was refused, since something newer would be lost; the message says what."""


@dataclass(frozen=True, slots=True)
class Restored:
    """A completed restore, described in words, and the files that are missing; "" if none are."""

    done: str
    left_out: str = ""

    @property
    def words(self) -> str:
        """Return the whole description of the restore."""
        return f"{self.done} {self.left_out}".rstrip()


@dataclass(frozen=True, slots=True)
class Asked:
    """A requested restore: its `actor` (as in the audit log) and its time (Unix seconds; None: the newest).

    `over` permits replacing the existing sprite, which is moved aside.
    """

    actor: str
    as_of: float | None = None
    over: bool = False
    #: Added to the message of a refusal.
    advice: str = "An operator can replace it by the replica."
    #: Leave out damaged turns and other rows, which would otherwise prevent the restore.
    leave_out_damaged: bool = False


class Restorer(Service):
    """Restore sprites from replicas: `async with Restorer(...) as restorer:`; one restore of a sprite at a time.

    `folder` is for temporary archives; `note` writes the audit log before any change.
    """

    def __init__(self, store: SealedStore, losses: LostSprites, host: Host, folder: Path, note: Note) -> None:
        self._store = store
        self.losses = losses
        self._host = host
        self._folder = folder
        self._note = note
        self._tasks = TaskSet()
        self._under_way: set[str] = set()

    async def _open(self, stack: AsyncExitStack) -> None:
        # Left over from a killed bridge.
        for left in self._folder.glob(f"{_PREFIX}*.zip"):
            left.unlink(missing_ok=True)
        await stack.enter_async_context(self._tasks)

    async def go_on(self, sprite: str) -> str:
        """Accept the sprite as it is and replicate it from the beginning. Raise StoreError."""
        await self._note(sprite, "store accept", sprite)
        await self._store.accept(sprite)
        return (
            "Your agent continues as it is. Its earlier replica stays for a month; whoever runs this bridge "
            "can restore it."
        )

    async def export(
        self,
        sprite: str,
        as_of: float | None,
        report: Report,
        on_left_out: Callable[[LeftOut], None],
        *,
        leaves_out_damaged: bool,
    ) -> AsyncIterator[bytes]:
        """Return the replica as an archive, and report its time. StoreError before the first bytes if there is none."""
        at = await self.kept_at(sprite)
        report("connecting", f"The replica of {sprite}'s agent is as of {moment(at if as_of is None else as_of)}.")
        return archive_of(
            self._store, sprite, as_of=as_of, on_left_out=on_left_out, leaves_out_damaged=leaves_out_damaged
        )

    async def restore(self, sprite: str, asked: Asked, report: Report) -> Restored:
        """Restore the sprite. Raise StoreError or HostError.

        If cancelled, it ends before the first irreversible step, or otherwise finishes in the background.
        """
        if checked_name(sprite) in self._under_way:
            raise RestoreRefusedError(f"{sprite}'s agent is being restored already.")
        self._under_way.add(sprite)
        begun = asyncio.Event()
        work = self._tasks.start(self._outcome(sprite, asked, report, begun), f"restore of {sprite}")
        work.add_done_callback(lambda _: self._under_way.discard(sprite))
        try:
            outcome = await asyncio.shield(work)
        except asyncio.CancelledError:
            if not begun.is_set():
                work.cancel()
            raise
        if not isinstance(outcome, Restored):
            raise outcome
        return outcome

    async def _outcome(
        self, sprite: str, asked: Asked, report: Report, begun: asyncio.Event
    ) -> Restored | StoreError | HostError:
        """Return the result or the refusal; a refusal is no failure of the task."""
        try:
            return await self._restore(sprite, asked, report, begun)
        except (StoreError, HostError) as error:
            return error
        except DatabaseError as error:
            return StoreError(f"The database could not be used: {error}")

    async def _restore(self, sprite: str, asked: Asked, report: Report, begun: asyncio.Event) -> Restored:
        left_out = list[LeftOut]()
        report("connecting", f"Reading the replica of {sprite}'s agent.")
        # Check before the archive is built, and again afterwards, because building takes time.
        await self._refuse_newer(sprite, asked)
        async with self._archive(sprite, asked, report, left_out.append) as (archive, manifest):
            await self._refuse_newer(sprite, asked)
            aside = await self._host.restore(sprite, archive, report, begin=partial(self._begin, sprite, asked, begun))
        begun.set()
        await self.losses.end(sprite)
        log.info("restored", extra={"sprite": sprite})
        turns = next((table.rows for table in manifest.tables if table.path == _TURNS), 0)
        kept = f"The earlier workspace is in {aside}." if aside else ""
        restored = (
            f"{sprite}'s agent is restored, with {counted(turns, 'turn')} and {counted(len(manifest.files), 'file')}."
        )
        return Restored(f"{restored} {kept}".rstrip(), " ".join(each.words() for each in left_out))

    async def _begin(self, sprite: str, asked: Asked, begun: asyncio.Event) -> None:
        if begun.is_set():
            return
        said = {"over": "yes"} if asked.over else {}
        if asked.as_of is not None:
            said["as_of"] = moment(asked.as_of)
        await self._note(asked.actor, "restore", sprite, **said)
        # A restored sprite ships everything again; so does the earlier one, if the restore fails.
        await self._store.accept(sprite)
        begun.set()
        if not self._host.is_one_step:
            await self.losses.begin(sprite)

    @asynccontextmanager
    async def _archive(
        self, sprite: str, asked: Asked, report: Report, on_left_out: Callable[[LeftOut], None]
    ) -> AsyncIterator[tuple[Path, Manifest]]:
        """Yield the replica as a temporary file, readable only by this user."""
        chunks = await self.export(sprite, asked.as_of, report, on_left_out, leaves_out_damaged=asked.leave_out_damaged)
        with ExitStack() as stack:
            try:
                self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                descriptor, name = tempfile.mkstemp(prefix=_PREFIX, suffix=".zip", dir=self._folder)
                stack.callback(Path(name).unlink, missing_ok=True)
                with os.fdopen(descriptor, "wb") as stream:
                    async for chunk in chunks:
                        await asyncio.to_thread(stream.write, chunk)
                with zipfile.ZipFile(name) as archive:
                    manifest = msgspec.json.decode(archive.read(MANIFEST), type=Manifest)
            except OSError as error:
                raise StoreError(f"The archive cannot be written to {self._folder} ({error.strerror}).") from error
            yield Path(name), manifest

    async def kept_at(self, sprite: str) -> float:
        """Return the time of the replica. Raise StoreError if there is none."""
        at = await self.losses.kept_at(sprite)
        if at is None:
            raise StoreError(f"There is no replica of {sprite}'s agent here.")
        return at

    async def _refuse_newer(self, sprite: str, asked: Asked) -> None:
        """Raise RestoreRefusedError if a sprite exists that may be newer. Raise StoreError if there is no replica."""
        await self.kept_at(sprite)
        if asked.over or await self.losses.is_begun(sprite) or not await self._host.is_there(sprite):
            return
        kept = await self._store.count(sprite, _TURNS, asked.as_of)
        raise RestoreRefusedError(
            f"{sprite}'s agent exists. The replica has {counted(kept, 'turn')}; a restore would lose everything newer. "
            f"{asked.advice}"
        )


Source = Literal["machine", "store"]
#: States of a machine that would have to be woken, is gone, or does not answer.
_NOT_AWAKE: Final = frozenset({"absent", "warm", "cold", "unknown"})


@dataclass(frozen=True, slots=True)
class Exported:
    """An export of a workspace. `as_of` is set for a replica's (Unix seconds), `left_out` lists its missing parts."""

    chunks: AsyncIterator[bytes]
    as_of: float | None = None
    left_out: LeftOut = field(default_factory=LeftOut)


async def exported(
    ownership: Ownership,
    host: Host,
    restorer: Restorer,
    sprite: str,
    report: Report,
    *,
    source: Source | None = None,
    as_of: float | None = None,
    leave_out_damaged: bool = False,
) -> Exported:
    """Return an archive whose first bytes have arrived, so that most errors are known. Raise HostError or StoreError.

    Without a `source`, use the newer one that needs no wake. An archive `as_of` a time always comes from the replica.
    The machine is asked only under this bridge's lease, because that may wake and update it: if another bridge has the
    sprite, the replica is used, or HostError raised if the machine was asked for or there is no replica.
    """
    kept_at = await restorer.losses.kept_at(checked_name(sprite))

    async def of_store() -> Exported:
        left_out = [LeftOut()]
        chunks = await restorer.export(sprite, as_of, report, left_out.append, leaves_out_damaged=leave_out_damaged)
        first = await anext(chunks, b"")
        return Exported(with_first(first, chunks), kept_at if as_of is None else as_of, left_out[-1])

    if source == "store" or as_of is not None:
        return await of_store()
    try:
        await ownership.own(sprite)
    except NotOwnedError as error:
        if source == "machine" or kept_at is None or not isinstance(error, OwnedElsewhere):
            raise HostError(error.for_operators) from error
        return await of_store()
    if source is None and kept_at is not None and (await host.state(sprite)).state in _NOT_AWAKE:
        return await of_store()
    try:
        chunks = await host.export(sprite, report)
        return Exported(with_first(await anext(chunks, b""), chunks))
    except HostError as error:
        if source is not None or kept_at is None:
            raise
        report("connecting", f"The machine returned no archive. {error}")
        return await of_store()
