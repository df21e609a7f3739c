"""Checks of a store: whether every piece is what was stored, and none is missing."""

import asyncio
import hashlib
import logging
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from bridge.db.database import Transaction
from bridge.errors import BridgeError
from bridge.replicas.keys import Keyring
from bridge.replicas.sealed_store import SealedStore
from bridge.replicas.sprite_log import SpriteLog, chunk_place
from bridge.replicas.store import DamagedError, Health, named_chunks

#: Pieces in one transaction: other writes wait no longer than this takes.
_PIECES_AT_ONCE = 50
_MOST_WORDS = 100
#: Most damaged rows and chunks that are recorded; the next check finds the others.
_MOST_DAMAGED = 10_000
#: Weight of comparing one bucket of a census, for the read rate.
_CENSUS_BYTES = 16 * 1024

#: The key columns of rows and chunks.
_TABLES = {"stored_rows": ("sprite", "generation", "part", "name", "position"), "stored_chunks": ("sprite", "name")}


@dataclass(slots=True)
class Findings:
    """Result of a check: what it read, the number of problems, and descriptions of the first ones."""

    rows: int = 0
    chunks: int = 0
    size: int = 0
    count: int = 0
    wrong: list[str] = field(default_factory=list)
    #: Damaged pieces, up to a limit: versions of rows by generation, part, name and position; chunks by name.
    damaged_rows: list[tuple[int, str, bytes, int]] = field(default_factory=list)
    damaged_chunks: list[bytes] = field(default_factory=list)

    def add(self, words: str, count: int = 1) -> None:
        """Record a problem."""
        self.count += count
        if len(self.wrong) < _MOST_WORDS:
            self.wrong.append(words)


#: Called after each step of a check with the number of bytes it read.
Pace = Callable[[int], Awaitable[None]]


async def _at_once(_size: int) -> None:
    pass


async def checked(store: SealedStore, sprite: str, pace: Pace = _at_once) -> Findings:
    """Run `verified` and store its result: a connected sprite then ships damaged pieces again."""
    findings = await verified(store, sprite, pace)
    await store.write(sprite, lambda log: log.end_check(findings.damaged_rows, findings.damaged_chunks, findings.count))
    return findings


async def verified(store: SealedStore, sprite: str, pace: Pace = _at_once) -> Findings:
    """Decrypt every version of every row and every chunk; verify that each matches its name, and that none is missing.

    Raise WrongKeyError if a key is missing, because no result is possible then.
    """
    findings = Findings()
    looks: tuple[tuple[str, _Look], ...] = (("stored_rows", _look_at_row), ("stored_chunks", _look_at_chunk))
    for table, look in looks:
        after: tuple[Any, ...] | None = None
        while True:
            before = findings.size
            # A shelf may run it more than once.
            step, after = await store.shelf.read(sprite, partial(_looked, sprite, store.keyring, table, look, after))
            _add(findings, step)
            if after is None:
                break
            await pace(findings.size - before)
    for generation, part, bucket in await store.read(sprite, SpriteLog.census):
        counted = partial(SpriteLog.missing, generation=generation, part=part, bucket=bucket)
        if (missing := await store.read(sprite, counted)) is not None:
            lost = f"lacks {missing} row(s)" if missing > 0 else "has other rows than those that were stored"
            findings.add(f"The store of {sprite} {lost} of {part}.", max(1, missing))
        await pace(_CENSUS_BYTES)
    if not await store.read(sprite, SpriteLog.is_counted_whole):
        findings.add(f"The store of {sprite} has lost some of its row counts.")
    return findings


_Look = Callable[[SpriteLog, Any, Findings], None]


def _add(findings: Findings, step: Findings) -> None:
    findings.rows += step.rows
    findings.chunks += step.chunks
    findings.size += step.size
    findings.count += step.count
    findings.wrong += step.wrong[: _MOST_WORDS - len(findings.wrong)]
    findings.damaged_rows += step.damaged_rows[: _MOST_DAMAGED - len(findings.damaged_rows)]
    findings.damaged_chunks += step.damaged_chunks[: _MOST_DAMAGED - len(findings.damaged_chunks)]


def _looked(
    sprite: str, keyring: Keyring, table: str, look: _Look, after: tuple[Any, ...] | None, tx: Transaction
) -> tuple[Findings, tuple[Any, ...] | None]:
    """Check the next pieces; return the start of the following ones, or None."""
    findings = Findings()
    columns = _TABLES[table]
    key = ", ".join(columns)
    beyond = "" if after is None else f"AND ({key}) > ({', '.join('?' * len(columns))})"
    found = tx.execute(
        f"SELECT * FROM {table} WHERE sprite = ? {beyond} ORDER BY {key} LIMIT ?",  # noqa: S608
        (sprite, *(after or ()), _PIECES_AT_ONCE),
    ).fetchall()
    log = SpriteLog(tx, sprite, keyring)
    for row in found:
        findings.size += len(row["sealed"])
        look(log, row, findings)
    return findings, tuple(found[-1][column] for column in columns) if found else None


def _look_at_row(log: SpriteLog, row: Any, findings: Findings) -> None:
    findings.rows += 1
    try:
        stored = log.row(row)
    except DamagedError as error:
        findings.add(str(error))
        findings.damaged_rows.append((row["generation"], row["part"], bytes(row["name"]), row["position"]))
        return
    for sha256 in named_chunks(stored.row):
        if not log.has_chunk(sha256):
            findings.add(str(log.lacks(sha256)))


def _look_at_chunk(log: SpriteLog, row: Any, findings: Findings) -> None:
    findings.chunks += 1
    name = bytes(row["name"])
    what = f"chunk {name.hex()[:16]}"
    try:
        content = log.unsealed(row, chunk_place(name), what)
        if log.chunk_name(hashlib.sha256(content).hexdigest()) != name:
            raise log.damaged(what)
    except DamagedError as error:
        findings.add(str(error))
        findings.damaged_chunks.append(name)


log = logging.getLogger(__name__)

_FIRST_SECONDS, _LOOK_SECONDS, _PAUSE_SECONDS = 60.0, 600.0, 0.05
#: Interval of a sprite's checks: with the time of one round, every sprite is checked within a day.
_EVERY_SECONDS = 10 * 3600.0
#: Time for one round over everything, within rates that a disk can spare for background work.
_ROUND_SECONDS = 10 * 3600.0
_SLOWEST, _FASTEST = 1024**2, 32 * 1024**2


class Checks:
    """Check replicas in the background; `on_damage` is called with a sprite that has damaged or missing pieces."""

    def __init__(self, store: SealedStore, on_damage: Callable[[str], None]) -> None:
        self._store = store
        self._on_damage = on_damage
        #: Checks by this bridge since its start: `whole`, `damaged`, `failed`.
        self.outcomes: Counter[str] = Counter()
        #: Currently damaged or missing pieces of each sprite that this bridge checked.
        self.damaged: dict[str, int] = {}

    async def run(self) -> None:
        """Check the replicas for ever."""
        await asyncio.sleep(_FIRST_SECONDS)
        while True:
            try:
                await self.look()
            except BridgeError as error:
                log.warning("the store cannot be checked: %s", error)
            await asyncio.sleep(_LOOK_SECONDS)

    async def look(self) -> None:
        """Check every sprite's replica whose check is due."""
        sprites = await self._store.sprites()
        size = sum([await self._store.read(sprite, SpriteLog.size) for sprite in sprites])
        pace = min(max(size / _ROUND_SECONDS, _SLOWEST), _FASTEST)
        for sprite in sprites:
            await self._check(sprite, pace)
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _check(self, sprite: str, bytes_a_second: float) -> None:
        async def pause(size: int) -> None:
            await asyncio.sleep(size / bytes_a_second)

        try:
            if not await self._store.write(sprite, lambda log: log.begin_check(_EVERY_SECONDS)):
                self._note(sprite, await self._store.health(sprite))
                return
            findings = await checked(self._store, sprite, pause)
        except BridgeError as error:
            self.outcomes["failed"] += 1
            log.warning("the store of %s cannot be checked: %s", sprite, error)
            return
        self.outcomes["damaged" if findings.count else "whole"] += 1
        self.damaged[sprite] = findings.count
        if findings.count:
            log.error("pieces of replicas are damaged or missing: %s", "; ".join(findings.wrong[:3]))
            self._on_damage(sprite)

    def _note(self, sprite: str, health: Health) -> None:
        """Adopt the result of another bridge or of `store verify`."""
        is_new = health.damaged > self.damaged.get(sprite, 0)
        self.damaged[sprite] = health.damaged
        if is_new:
            self._on_damage(sprite)
