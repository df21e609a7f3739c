"""Retrieval on LoCoMo: which share of a question's evidence turns is among the first 5, 10 and 20 hits, in %.

One workspace per conversation, one turn of the log per turn of the dialogue, written and searched through the real
code. The path of the data is an argument; it is not ours to ship (benchmarks/locomo.py).

    python -m benchmarks.bench_locomo locomo10.json [--leave-one-out]
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import sqlite3
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from benchmarks.locomo import Conversation, load
from sprite.curation.decide import Judge
from sprite.log.curations import Curation
from sprite.log.transcript import NewObservation, TranscriptDB, open_transcript
from sprite.memory.database import MemoryDB, open_memory
from sprite.memory.files import MemoryFiles
from sprite.memory.projection import Projection
from sprite.memory.query import any_term, significant
from sprite.search import ranking
from sprite.search.search import search

DEPTHS = (5, 10, 20)
#: Recall at each depth.
Recall = tuple[float, ...]
#: A question -> places of turns, best first.
Finder = Callable[[str], Awaitable[Sequence[int]]]
WITHOUT = (70.0, 78.0, 83.0)
WITH_LEARNINGS = (72.0, 79.0, 84.0)


@asynccontextmanager
async def workspace(conversation: Conversation, *, learnings: bool) -> AsyncIterator[tuple[TranscriptDB, MemoryDB]]:
    """The conversation as a workspace's memory; turn ids are places + 1."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        transcript = await stack.enter_async_context(open_transcript(folder / "transcript.db"))
        memory = await stack.enter_async_context(open_memory(folder / "memory.db"))
        for session in dict.fromkeys(turn.session for turn in conversation.turns):
            await transcript.start_session(f"session-{session}")
        for turn in conversation.turns:
            sides = (f"{turn.speaker}: {turn.text}", "")
            user, reply = sides if turn.speaker == conversation.people[0] else sides[::-1]
            await transcript.add_observation(
                NewObservation(f"session-{turn.session}", user, [], reply, "complete"), at=turn.at
            )
        if learnings:
            await _curate(conversation, transcript, memory, MemoryFiles(folder))
        yield transcript, memory


async def _curate(conversation: Conversation, transcript: TranscriptDB, memory: MemoryDB, files: MemoryFiles) -> None:
    files.ensure()
    lines = "\n".join(f"FACT [t{place + 1}] {' '.join(text.split())}" for place, text in conversation.learnings)
    answer = Curation("batch", lines, 1, len(conversation.turns), model="bench")
    await Projection(transcript, memory, files).log_batch(lambda: Judge(transcript, memory).decided(answer))


async def measure(conversation: Conversation, find: Finder) -> list[Recall]:
    """Recall of each question."""
    recalls = []
    for question in conversation.questions:
        found = list(dict.fromkeys(await find(question.text)))
        recalls.append(
            tuple(100 * len(question.evidence & set(found[:depth])) / len(question.evidence) for depth in DEPTHS)
        )
    return recalls


async def ours(conversation: Conversation, *, learnings: bool = False) -> list[Recall]:
    """Through `search`; a learning counts as the turn it cites, and takes its own place."""
    async with workspace(conversation, learnings=learnings) as (transcript, memory):

        async def find(question: str) -> list[int]:
            found = await search(transcript, memory, question, max(DEPTHS))
            # A turn told twice takes two places: the second counts as a place with nothing in it.
            seen: set[int] = set()
            places = []
            for empty, hit in enumerate(found.hits, start=1):
                fresh = hit.turn_id is not None and hit.turn_id not in seen
                places.append(hit.turn_id - 1 if fresh and hit.turn_id is not None else -empty)
                seen.add(hit.turn_id or 0)
            return places

        return await measure(conversation, find)


def _texts(conversation: Conversation) -> list[str]:
    return [
        f"{datetime.fromtimestamp(turn.at, UTC):%d %B %Y} {turn.speaker}: {turn.text}" for turn in conversation.turns
    ]


async def fts5(conversation: Conversation, *, raw: bool) -> list[Recall]:
    """FTS5 as most would write it: porter, stop words out, every term quoted, OR, bm25; or the question as it is."""
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE VIRTUAL TABLE turns USING fts5 (text, tokenize = 'porter unicode61')")
    connection.executemany("INSERT INTO turns (rowid, text) VALUES (?, ?)", enumerate(_texts(conversation)))

    async def find(question: str) -> list[int]:
        match = question if raw else any_term(significant(question))
        try:
            rows = connection.execute("SELECT rowid FROM turns WHERE turns MATCH ? ORDER BY rank LIMIT 20", (match,))
            return [row[0] for row in rows]
        except sqlite3.OperationalError:
            return []

    return await measure(conversation, find)


async def rank_bm25(conversation: Conversation) -> list[Recall]:
    """The usual Python library, on words in lower case."""
    index = import_module("rank_bm25").BM25Okapi([text.lower().split() for text in _texts(conversation)])

    async def find(question: str) -> list[int]:
        scores = index.get_scores(question.lower().split())
        return sorted(range(len(scores)), key=lambda place: -scores[place])[: max(DEPTHS)]

    return await measure(conversation, find)


def mean(recalls: Sequence[Recall]) -> Recall:
    """The mean over questions."""
    return tuple(sum(column) / len(recalls) for column in zip(*recalls, strict=True))


def row(name: str, recalls: Sequence[Sequence[Recall]], wanted: Recall | None = None) -> None:
    """One line of the table: all questions, then each conversation."""
    total = mean([recall for conversation in recalls for recall in conversation])
    ok = wanted is None or all(found >= least for found, least in zip(total, wanted, strict=True))
    cells = [" / ".join(f"{value:4.1f}" for value in values) for values in (total, *(mean(r) for r in recalls))]
    goal = f"   wanted {' / '.join(f'{least:.0f}' for least in wanted)}" if wanted else ""
    print(f"{'ok  ' if ok else 'MISS'}  {name:<36} {'   '.join(cells)}{goal}", flush=True)


async def leave_one_out(conversations: Sequence[Conversation]) -> list[list[Recall]]:
    """Settings chosen on all conversations but one, measured on that one."""
    names = ("SUBJECT_WEIGHT", "NAMED_SPEAKER", "LENGTH_POWER", "B")
    shipped = [getattr(ranking, name) for name in names]
    grid = list(itertools.product((0.12, 0.25, 0.5), (1.3, 1.5, 1.8), (0.1, 0.2, 0.3), (0.4, 0.75)))
    results = []
    for values in grid:
        for name, value in zip(names, values, strict=True):
            setattr(ranking, name, value)
        results.append([await ours(conversation) for conversation in conversations])
    for name, value in zip(names, shipped, strict=True):
        setattr(ranking, name, value)
    held_out = []
    for left in range(len(conversations)):
        learned_from = [
            sum(mean([recall for place, recalls in enumerate(result) if place != left for recall in recalls]))
            for result in results
        ]
        best = learned_from.index(max(learned_from))
        print(f"      without {conversations[left].name}: {dict(zip(names, grid[best], strict=True))}")
        held_out.append(results[best][left])
    return held_out


async def main(path: Path, *, left_out: bool) -> None:
    """Prints the table."""
    conversations = load(path)
    turns = sum(len(conversation.turns) for conversation in conversations)
    questions = sum(len(conversation.questions) for conversation in conversations)
    names = ", ".join(conversation.name for conversation in conversations)
    print(f"{len(conversations)} conversations, {turns} turns, {questions} questions")
    print(f"recall at {' / '.join(map(str, DEPTHS))} of all, then of {names}")
    row("the raw question given to MATCH", [await fts5(c, raw=True) for c in conversations])
    if find_spec("rank_bm25"):
        row("rank_bm25", [await rank_bm25(c) for c in conversations])
    row("FTS5, as most would write it", [await fts5(c, raw=False) for c in conversations])
    row("search_memory", [await ours(c) for c in conversations], WITHOUT)
    source = "the data's own" if all(c.has_observations for c in conversations) else "a stand-in, see locomo.py"
    row(f"with learnings ({source})", [await ours(c, learnings=True) for c in conversations], WITH_LEARNINGS)
    if left_out:
        row("leave one conversation out", await leave_one_out(conversations), WITHOUT)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path, help="locomo10.json, or a part of it")
    parser.add_argument("--leave-one-out", action="store_true")
    arguments = parser.parse_args()
    asyncio.run(main(arguments.path, left_out=arguments.leave_one_out))
