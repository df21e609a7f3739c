"""Checks of a store: whether every piece is what was stored, and none is missing."""

import asyncio
import hashlib
import logging
import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from bridge.errors import BridgeError
from bridge.replicas.sealed_store import SealedStore
from bridge.replicas.sprite_log import CHUNKS, KEYS, ROWS, SpriteLog, chunk_place, spot_of
from bridge.replicas.store import DamagedError, named_chunks

#: Pieces in one transaction: other writes wait no longer than this takes.
_PIECES_AT_ONCE = 50
_MOST_WORDS = 100
#: Most damaged pieces of each kind that are recorded; the next check finds the others.
_MOST_DAMAGED = 10_000
#: Weight of comparing one bucket of a census, for the read rate.
_CENSUS_BYTES = 16 * 1024


@dataclass(slots=True)
class Findings:
    """Result of a check: what it read, the number of problems, and descriptions of the first ones."""

    rows: int = 0
    chunks: int = 0
    count: int = 0
    wrong: list[str] = field(default_factory=list)
    #: Keys of damaged pieces by table, up to a limit.
    damaged: dict[str, list[tuple[Any, ...]]] = field(default_factory=lambda: {table: [] for table in KEYS})

    def add(self, words: str, count: int = 1) -> None:
        """Record a problem."""
        self.count += count
        if len(self.wrong) < _MOST_WORDS:
            self.wrong.append(words)


async def checked(store: SealedStore, sprite: str, bytes_a_second: float = math.inf) -> Findings:
    """Run `verified` and store its result: a connected sprite then ships damaged pieces again."""
    findings = await verified(store, sprite, bytes_a_second)
    await store.write(sprite, lambda log: log.end_check(findings.damaged, findings.count))
    return findings


async def verified(store: SealedStore, sprite: str, bytes_a_second: float = math.inf) -> Findings:
    """Decrypt every version of every row and every chunk; verify that each matches its name, and that none is missing.

    Raise WrongKeyError if a key is missing, because no result is possible then.
    """
    findings = Findings()
    findings.rows = await _look(store, sprite, findings, ROWS, _row_problems, bytes_a_second)
    findings.chunks = await _look(store, sprite, findings, CHUNKS, _chunk_problems, bytes_a_second)
    for generation, part, bucket in await store.read(sprite, SpriteLog.census):
        counted = partial(SpriteLog.missing, generation=generation, part=part, bucket=bucket)
        if (missing := await store.read(sprite, counted)) is not None:
            lost = f"lacks {missing} row(s)" if missing > 0 else "has other rows than those that were stored"
            findings.add(f"The store of {sprite} {lost} of {part}.", max(1, missing))
        await asyncio.sleep(_CENSUS_BYTES / bytes_a_second)
    if not await store.read(sprite, SpriteLog.is_counted_whole):
        findings.add(f"The store of {sprite} has lost some of its row counts.")
    return findings


#: A problem of a piece in words, and the key of a damaged one.
_Problem = tuple[str, tuple[Any, ...] | None]
_Problems = Callable[[SpriteLog, Any], Iterator[_Problem]]


async def _look(
    store: SealedStore, sprite: str, findings: Findings, table: str, problems: _Problems, bytes_a_second: float
) -> int:
    """Add the problems of a table's pieces to the findings; return the number of pieces."""

    def looked(log: SpriteLog) -> tuple[list[Any], list[_Problem]]:
        pieces = log.pieces(table, after, _PIECES_AT_ONCE)
        return pieces, [problem for piece in pieces for problem in problems(log, piece)]

    count, after = 0, ()
    while True:
        # A shelf may run it more than once.
        pieces, found = await store.read(sprite, looked)
        if not pieces:
            return count
        count += len(pieces)
        for words, damaged in found:
            findings.add(words)
            if damaged is not None and len(findings.damaged[table]) < _MOST_DAMAGED:
                findings.damaged[table].append(damaged)
        after = tuple(pieces[-1][column] for column in KEYS[table])
        await asyncio.sleep(sum(len(piece["sealed"]) for piece in pieces) / bytes_a_second)


def _row_problems(log: SpriteLog, row: Any) -> Iterator[_Problem]:
    try:
        stored = log.row(row)
    except DamagedError as error:
        yield str(error), spot_of(row)
        return
    for sha256 in named_chunks(stored.row):
        if not log.has_chunk(sha256):
            yield str(log.lacks(sha256)), None


def _chunk_problems(log: SpriteLog, row: Any) -> Iterator[_Problem]:
    name = bytes(row["name"])
    what = f"chunk {name.hex()[:16]}"
    try:
        content = log.unsealed(row, chunk_place(name), what)
        if log.chunk_name(hashlib.sha256(content).hexdigest()) != name:
            raise log.damaged(what)
    except DamagedError as error:
        yield str(error), (name,)


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
        bytes_a_second = min(max(size / _ROUND_SECONDS, _SLOWEST), _FASTEST)
        for sprite in sprites:
            await self._check(sprite, bytes_a_second)
            await asyncio.sleep(_PAUSE_SECONDS)

    async def _check(self, sprite: str, bytes_a_second: float) -> None:
        known = self.damaged.get(sprite, 0)
        try:
            if await self._store.write(sprite, lambda log: log.claim("check_began_at", _EVERY_SECONDS)):
                known, findings = 0, await checked(self._store, sprite, bytes_a_second)
                damaged = findings.count
                self.outcomes["damaged" if damaged else "whole"] += 1
                if damaged:
                    log.error("pieces of replicas are damaged or missing: %s", "; ".join(findings.wrong[:3]))
            else:
                # Adopt the result of another bridge or of `store verify`.
                damaged = (await self._store.read(sprite, SpriteLog.health)).damaged
        except BridgeError as error:
            self.outcomes["failed"] += 1
            log.warning("the store of %s cannot be checked: %s", sprite, error)
            return
        self.damaged[sprite] = damaged
        if damaged > known:
            self._on_damage(sprite)
