"""search_memory beside the same full OR query given to plain `sqlite3`.

At 100,000 learnings, at 10,000 turns with as many learnings, (--long: some minutes) at 100,000 turns whose replies are
long, by words and by meaning, and (--million: some minutes) at a million learnings.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import random
import resource
import sqlite3
import statistics
import struct
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.bench_retrieval import embedding
from benchmarks.report import below, line, ratio
from sprite.log.transcript import TranscriptDB, open_transcript
from sprite.memory.database import MemoryDB, open_memory
from sprite.memory.query import any_term, parse_query
from sprite.search.meaning.vectors import PIECE_RULE, open_vectors
from sprite.search.search import search

QUERIES = 200
WARM_UP = 20
QUERY_WORDS = 5
#: Words by Zipf's law, as in language: a few are everywhere, most are rare.
VOCABULARY = 20_000
WORDS = 14
SESSION_TURNS = 25
#: Sentences of a long reply: about 300 words.
LONG_REPLY = 21
#: Numbers in a vector of the bundled model, and a scale that makes vectors of random bytes about 1 long.
DIMENSIONS, SCALE = 384, 0.0007
#: Sentences in memory at a time.
CHUNK = 10_000
MEGABYTE = 1024 * 1024


def sentences(number: int, seed: int) -> list[str]:
    """Synthetic learnings; the same for the same seed."""
    chance = random.Random(seed)
    names = [f"w{index}" for index in range(VOCABULARY)]
    weights = [1 / (rank + 10) for rank in range(VOCABULARY)]
    words = iter(chance.choices(names, weights, k=number * WORDS))
    return [" ".join(next(words) for _ in range(WORDS)) for _ in range(number)]


def numbered(number: int, seed: int) -> Iterator[tuple[int, str]]:
    """Sentences with their numbers from 0, a chunk at a time."""
    for first in range(0, number, CHUNK):
        yield from enumerate(sentences(min(CHUNK, number - first), seed + first), start=first)


def fill_learnings(path: Path, number: int, turns: int) -> None:
    """Writes learnings straight into the projection: this measures searching."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executemany(
            "INSERT INTO learnings (created_at, session_id, type, content, source_observation_id, confidence, "
            "curation_id, origin, last_seen) VALUES (?1, 's0', 'FACT', ?2, ?3, 0.9, 1, 'user', ?1)",
            ((float(place), text, place % turns + 1 if turns else None) for place, text in numbered(number, seed=1)),
        )


def replies(number: int, length: int) -> Iterator[str]:
    """Replies of so many sentences."""
    said = (text for _, text in numbered(number * length, seed=4))
    return (". ".join(itertools.islice(said, length)) for _ in range(number))


def fill_turns(path: Path, number: int, reply_sentences: int) -> None:
    """Writes turns straight into the log, each with a message of one sentence."""
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.executemany(
            "INSERT INTO sessions (id, started_at, last_active_at) VALUES ('s' || ?, 0, 0)",
            ((session,) for session in range(number // SESSION_TURNS + 1)),
        )
        connection.executemany(
            "INSERT INTO observations (timestamp, session_id, sequence_num, user_message, tool_calls_json, "
            "agent_response, processed, outcome, trigger) VALUES (?, 's' || ?, ?, ?, '[]', ?, 1, 'complete', 'user')",
            (
                (float(place), place // SESSION_TURNS, place % SESSION_TURNS, message, reply)
                for (place, message), reply in zip(
                    numbered(number, seed=3), replies(number, reply_sentences), strict=True
                )
            ),
        )


class RandomEmbedder:
    """A vector for each text without a model: this measures searching."""

    model = "random"

    async def embed(self, text: str, *, question: bool = False) -> Sequence[float]:
        """The same for the same text."""
        chance = random.Random(f"{text} {question}")
        return [chance.gauss(0, 1) for _ in range(DIMENSIONS)]

    async def warm(self) -> None:
        """Nothing is loaded."""

    async def release(self) -> None:
        """Nothing is held."""


async def fill_vectors(path: Path, number: int) -> None:
    """Writes vectors straight into their file."""
    async with open_vectors(path) as vectors:
        await vectors.load(f"{RandomEmbedder.model}; {PIECE_RULE}")
    chance = random.Random(5)
    with closing(sqlite3.connect(path)) as connection, connection:
        sides = (struct.pack("<f", SCALE) + chance.randbytes(DIMENSIONS) for _ in itertools.count())
        connection.executemany(
            "INSERT INTO vectors VALUES (?, ?, ?, ?)",
            ((place + 1, float(place), next(sides), next(sides)) for place in range(number)),
        )


@asynccontextmanager
async def filled(
    learnings: int, turns: int, reply_sentences: int
) -> AsyncIterator[tuple[TranscriptDB, MemoryDB, Path]]:
    """A workspace's memory with so much in it."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        memory = await stack.enter_async_context(open_memory(folder / "memory.db"))
        transcript = await stack.enter_async_context(open_transcript(folder / "transcript.db"))
        fill_turns(folder / "transcript.db", turns, reply_sentences)
        fill_learnings(folder / "memory.db", learnings, turns)
        yield transcript, memory, folder


def questions() -> list[str]:
    """Queries: words as frequent as in the texts."""
    return [" ".join(text.split()[:QUERY_WORDS]) for text in sentences(QUERIES + WARM_UP, seed=2)]


def full_or(connection: sqlite3.Connection, table: str, question: str) -> list[int]:
    """The first ten by bm25 of all rows that have any of the words."""
    match = any_term(parse_query(question).terms)
    sql = f"SELECT rowid FROM {table} WHERE {table} MATCH ? ORDER BY rank LIMIT 10"  # noqa: S608 - our own tables
    return [row[0] for row in connection.execute(sql, (match,))]


@dataclass(slots=True)
class Compared:
    """Milliseconds of search_memory, by the clock and of the processor, and of plain FTS5; what they found alike.

    `meant` are those with search by meaning.
    `recalls` are the parts of plain FTS5's first ten that search_memory found, in %; `megabytes` the process's memory,
    and `index_megabytes` the size of the turns' index.
    """

    found: list[float] = field(default_factory=list)
    processor: list[float] = field(default_factory=list)
    meant: list[float] = field(default_factory=list)
    meant_processor: list[float] = field(default_factory=list)
    plain: list[float] = field(default_factory=list)
    recalls: list[float] = field(default_factory=list)
    megabytes: float = 0.0
    index_megabytes: float = 0.0


async def compare(learnings: int, turns: int, reply_sentences: int = 1, *, by_meaning: bool = False) -> Compared:
    """Both alternate on the same questions, so that noise affects both."""
    compared = Compared()
    async with filled(learnings, turns, reply_sentences) as (transcript, memory, folder), AsyncExitStack() as stack:
        if by_meaning:
            await fill_vectors(folder / "vectors.db", turns)
        embedder = RandomEmbedder() if by_meaning else None
        meaning, caught_up = await stack.enter_async_context(embedding(folder, transcript, embedder))
        await caught_up(turns)
        raw_learnings = stack.enter_context(closing(sqlite3.connect(folder / "memory.db")))
        raw_turns = stack.enter_context(closing(sqlite3.connect(folder / "transcript.db")))
        for question in questions():
            started, worked = time.perf_counter(), time.process_time()
            hits = (await search(transcript, memory, question)).hits
            compared.found.append((time.perf_counter() - started) * 1000)
            compared.processor.append((time.process_time() - worked) * 1000)
            if meaning is not None:
                started, worked = time.perf_counter(), time.process_time()
                await search(transcript, memory, question, meaning=meaning)
                compared.meant.append((time.perf_counter() - started) * 1000)
                compared.meant_processor.append((time.process_time() - worked) * 1000)
            started = time.perf_counter()
            expected = full_or(raw_learnings, "learnings_fts", question)
            if turns:
                full_or(raw_turns, "observations_fts", question)
            compared.plain.append((time.perf_counter() - started) * 1000)
            ours = {hit.id for hit in hits if hit.kind == "learning"}
            compared.recalls.append(100 * len(ours & set(expected)) / max(1, len(expected)))
        (size,) = raw_turns.execute("SELECT sum(length(block)) FROM observations_fts_data").fetchone()
        compared.index_megabytes = size / MEGABYTE
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
        compared.megabytes = pages * resource.getpagesize() / MEGABYTE
    for samples in (
        compared.found,
        compared.processor,
        compared.meant,
        compared.meant_processor,
        compared.plain,
        compared.recalls,
    ):
        del samples[:WARM_UP]
    return compared


def percentile_99(samples: Sequence[float]) -> float:
    """The 99th percentile."""
    return statistics.quantiles(samples, n=100)[98]


async def main(learnings: int, *, long: bool, million: bool) -> None:
    """Prints every figure. Processor time is what the clock shows on a machine that has nothing else to do."""
    at = await compare(learnings, 0)
    below(f"search_memory at {learnings:,} learnings", at.found, 20)
    ratio("search_memory / the same query through sqlite3", at.found, at.plain, 3.0)
    at = await compare(10_000, 10_000)
    below("search_memory at 10,000 turns with 10,000 learnings", at.found, 10)
    ratio("search_memory / both tables through sqlite3", at.found, at.plain, 3.0)
    line("the index of these turns", f"{at.index_megabytes:.1f} MB", "stated", ok=True)
    if long:
        at = await compare(0, 100_000, LONG_REPLY, by_meaning=True)
        below("search_memory at 100,000 turns with replies of 300 words", at.found, 60)
        below("its processor time", at.processor, 60)
        below("by meaning, too", at.meant, 60)
        below("its processor time", at.meant_processor, 60)
        line("the index of these turns", f"{at.index_megabytes:.0f} MB", "stated", ok=True)
    if million:
        at = await compare(1_000_000, 0)
        below("search_memory at 1,000,000 learnings", at.found, 40)
        below("its processor time", at.processor, 40)
        slowest = percentile_99(at.processor)
        line("the 99th percentile of its processor time", f"{slowest:.2f} ms", "< 80 ms", ok=slowest < 80)
        ratio("search_memory / the full OR query", at.found, at.plain, 0.7)
        lost = 100 - statistics.mean(at.recalls)
        line("of the full OR query's first ten, lost", f"{lost:.2f} points", "<= 1 point", ok=lost <= 1)
        line("resident memory of the process", f"{at.megabytes:.0f} MB", "< 120 MB", ok=at.megabytes < 120)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--learnings", type=int, default=100_000)
    parser.add_argument("--long", action="store_true", help="also at 100,000 turns with long replies")
    parser.add_argument("--million", action="store_true", help="also at a million learnings")
    arguments = parser.parse_args()
    asyncio.run(main(arguments.learnings, long=arguments.long, million=arguments.million))
