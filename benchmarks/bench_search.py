"""search_memory over 100,000 learnings against the same FTS5 query given to plain `sqlite3`."""

from __future__ import annotations

import argparse
import asyncio
import random
import sqlite3
import tempfile
import time
from pathlib import Path

from benchmarks.report import below, ratio
from sprite.database.memory import open_memory
from sprite.database.transcript import open_transcript
from sprite.memory.query import parse_query
from sprite.memory.search import search

QUERIES = 200
#: Words by Zipf's law, as in language: a few are everywhere, most are rare.
VOCABULARY = 20_000
WORDS = 14


def sentences(number: int, seed: int) -> list[str]:
    """Synthetic learnings; the same for the same seed."""
    chance = random.Random(seed)
    names = [f"w{index}" for index in range(VOCABULARY)]
    weights = [1 / (rank + 10) for rank in range(VOCABULARY)]
    words = iter(chance.choices(names, weights, k=number * WORDS))
    return [" ".join(next(words) for _ in range(WORDS)) for _ in range(number)]


def fill(path: Path, texts: list[str]) -> None:
    """Writes learnings straight into the projection: this measures searching."""
    connection = sqlite3.connect(path)
    with connection:
        connection.executemany(
            "INSERT INTO learnings (created_at, session_id, type, content, source_observation_id, confidence, "
            "curation_id, origin, last_seen) VALUES (?, 's', 'FACT', ?, ?, 0.9, 1, 'user', ?)",
            ((float(number), text, number, float(number)) for number, text in enumerate(texts)),
        )
    connection.close()


async def main(learnings: int) -> None:
    """Prints every figure."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with open_memory(folder / "memory.db") as memory, open_transcript(folder / "transcript.db") as log:
            fill(folder / "memory.db", sentences(learnings, seed=1))
            raw = sqlite3.connect(folder / "memory.db")
            found, plain = [], []
            for question in (" ".join(text.split()[:5]) for text in sentences(QUERIES, seed=2)):
                match = f"{{content}} : ({parse_query(question).match})"
                started = time.perf_counter()
                raw.execute(
                    "SELECT rowid, rank FROM learnings_fts WHERE learnings_fts MATCH ? ORDER BY rank LIMIT 10", (match,)
                ).fetchall()
                plain.append((time.perf_counter() - started) * 1000)
                started = time.perf_counter()
                await search(log, memory, question)
                found.append((time.perf_counter() - started) * 1000)
            raw.close()
    below(f"search_memory at {learnings:,} learnings", found, 20)
    ratio("search_memory / the same query through sqlite3", found, plain, 3.0)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--learnings", type=int, default=100_000)
    asyncio.run(main(parser.parse_args().learnings))
