"""Retrieval on every set of a folder: the share of a question's evidence among the first 5, 10 and 20 hits, in %.

Beside search_memory, with and without the learnings a set has, stand two plain FTS5 rankings of the same run: of the
whole exchange, and of the person's side alone. The data is not ours to ship (benchmarks/retrieval_sets.py).

    python -m benchmarks.bench_retrieval FOLDER [--only NAME ...] [--together NAME ...] [--classes] [--leave-one-out]
        [--meaning FILE]
"""

from __future__ import annotations

import argparse
import asyncio
import sqlite3
import statistics
import tempfile
import time
from array import array
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.retrieval_sets import DEPTHS, DataSet, Question, Recall, Said, Workspace, load
from sprite.config import Settings
from sprite.log.transcript import TranscriptDB, open_transcript
from sprite.memory.database import MemoryDB, open_memory
from sprite.memory.query import parse_query
from sprite.search import ranking
from sprite.search.meaning.embedders import Embedder, ProcessEmbedder
from sprite.search.meaning.meaning import Meaning
from sprite.search.meaning.vectors import open_vectors, piece
from sprite.search.search import MAX_LIMIT, search
from sprite.storage.full_text import TOKENIZER, spaced

#: A setting of the ranking: constants with other values than the shipped ones.
Setting = dict[str, float]
#: One constant at a time, about half and twice the shipped value, for --leave-one-out.
SETTINGS: list[Setting] = [
    {},
    {"B": 0.2},
    {"B": 0.6},
    {"STANDS_ALONE": 150.0},
    {"STANDS_ALONE": 600.0},
    {"SUBJECT_WEIGHT": 0.12},
    {"SUBJECT_WEIGHT": 0.5},
    {"LENGTH_POWER": 0.1},
    {"LENGTH_POWER": 0.3},
    {"NAMED_SPEAKER": 1.25},
    {"NAMED_SPEAKER": 2.0},
    {"ASKING": 0.25},
    {"ASKING": 1.0},
]
#: Hits asked for; where sessions count, so many that 20 of them are among the turns.
HITS = {"turn": max(DEPTHS), "session": MAX_LIMIT}
AT_10 = DEPTHS.index(10)


@dataclass(slots=True)
class Measured:
    """Recall of each question of a set, and the processor's milliseconds for each."""

    recalls: list[Recall] = field(default_factory=list)
    milliseconds: list[float] = field(default_factory=list)

    @property
    def mean(self) -> Recall:
        """The mean over questions."""
        return tuple(map(statistics.fmean, zip(*self.recalls, strict=True)))


def plain(data: DataSet, *, person_only: bool) -> Measured:
    """FTS5 as most would write it: porter, stop words out, every term quoted, OR, bm25."""
    measured = Measured()
    for workspace in data.workspaces:
        with closing(sqlite3.connect(":memory:")) as connection:
            connection.execute(f"CREATE VIRTUAL TABLE turns USING fts5 (text, tokenize = '{TOKENIZER}')")
            for question, new, _ in asked_in_order(workspace):
                connection.executemany(
                    "INSERT INTO turns (rowid, text) VALUES (?, ?)",
                    ((at, spaced(said.user if person_only else f"{said.user}\n{said.reply}")) for at, said in new),
                )
                match = " OR ".join(needle[0] for needle in parse_query(question.text).needles)
                rows = connection.execute(
                    "SELECT rowid FROM turns WHERE turns MATCH ? ORDER BY rank LIMIT ?", (match, HITS[data.measure])
                )
                places = [row[0] for row in rows]
                measured.recalls.append(question.recall(places, workspace.turns, data.measure))
    return measured


def asked_in_order(workspace: Workspace) -> Iterator[tuple[Question, list[tuple[int, Said]], list[tuple[int, str]]]]:
    """Each question with the turns and learnings that are new since the one before."""
    told = 0
    for question in workspace.questions:
        until = max(told, question.before)
        yield (
            question,
            list(enumerate(workspace.turns))[told:until],
            [learning for learning in workspace.learnings if told <= learning[0] < until],
        )
        told = until


@asynccontextmanager
async def stores(folder: Path) -> AsyncIterator[tuple[TranscriptDB, MemoryDB, sqlite3.Connection, sqlite3.Connection]]:
    """An empty memory, and connections to write into it."""
    async with AsyncExitStack() as stack:
        transcript = await stack.enter_async_context(open_transcript(folder / "transcript.db"))
        memory = await stack.enter_async_context(open_memory(folder / "memory.db"))
        yield (
            transcript,
            memory,
            stack.enter_context(closing(sqlite3.connect(folder / "transcript.db"))),
            stack.enter_context(closing(sqlite3.connect(folder / "memory.db"))),
        )


def write_turns(connection: sqlite3.Connection, turns: Sequence[tuple[int, Said]]) -> None:
    """Turns straight into the log; a turn's id is its place + 1."""
    with connection:
        connection.executemany(
            "INSERT OR IGNORE INTO sessions (id, started_at) VALUES (?, ?)",
            ((said.session, said.at) for _, said in turns),
        )
        connection.executemany(
            "INSERT INTO observations (id, timestamp, session_id, sequence_num, user_message, tool_calls_json, "
            "agent_response, processed, outcome) VALUES (?, ?, ?, ?, ?, '[]', ?, 1, 'complete')",
            ((place + 1, said.at, said.session, place, said.user, said.reply) for place, said in turns),
        )


def write_learnings(
    connection: sqlite3.Connection, learnings: Sequence[tuple[int, str]], turns: Sequence[Said]
) -> None:
    """Learnings straight into the projection."""
    with connection:
        connection.executemany(
            "INSERT INTO learnings (created_at, session_id, type, content, source_observation_id, confidence, "
            "curation_id, origin, last_seen) VALUES (?1, ?2, 'FACT', ?3, ?4, 0.9, 1, 'user', ?1)",
            ((turns[place].at, turns[place].session, text, place + 1) for place, text in learnings),
        )


@contextmanager
def set_to(setting: Setting) -> Iterator[None]:
    """The ranking with other constants."""
    shipped = {name: getattr(ranking, name) for name in setting}
    for name, value in setting.items():
        setattr(ranking, name, value)
    try:
        yield
    finally:
        for name, value in shipped.items():
            setattr(ranking, name, value)


class CachedEmbedder:
    """The bundled model with its vectors in a file, since a million words take an hour."""

    def __init__(self, embedder: Embedder, path: Path) -> None:
        self.model = embedder.model
        self.warm, self.release = embedder.warm, embedder.release
        self._embedder = embedder
        self._cache = sqlite3.connect(path, isolation_level=None)
        self._cache.execute(
            "CREATE TABLE IF NOT EXISTS vectors (model, text, question, vector, PRIMARY KEY (model, text, question))"
        )

    async def embed(self, text: str, *, question: bool = False) -> Sequence[float]:
        """A text's vector, from the file if it is there."""
        key = (self.model, text, question)
        known = "SELECT vector FROM vectors WHERE model = ? AND text = ? AND question = ?"
        row = self._cache.execute(known, key).fetchone()
        if row is None:
            row = (array("f", await self._embedder.embed(text, question=question)).tobytes(),)
            self._cache.execute("INSERT INTO vectors VALUES (?, ?, ?, ?)", (*key, row[0]))
        return array("f", row[0])


@asynccontextmanager
async def embedding(
    folder: Path, transcript: TranscriptDB, embedder: Embedder | None
) -> AsyncIterator[tuple[Meaning | None, Callable[[int], Awaitable[None]]]]:
    """Search by meaning, and a function that waits until so many turns have vectors; (None, ...) without a model."""
    if embedder is None:
        yield None, lambda _: asyncio.sleep(0)
        return
    async with open_vectors(folder / "vectors.db") as vectors:
        meaning = Meaning(transcript, vectors, embedder, folder / "note")

        async def caught_up(turns: int) -> None:
            meaning.turns_changed()
            while len(await vectors.turns()) < turns and not meaning.trouble:  # noqa: ASYNC110 - no event tells
                await asyncio.sleep(0.01)

        task = asyncio.create_task(meaning.run(lambda: False))
        yield meaning, caught_up
        task.cancel()
        await asyncio.wait({task})


async def ours(
    data: DataSet, settings: Sequence[Setting] = ({},), *, learnings: bool = False, embedder: Embedder | None = None
) -> list[Measured]:
    """Through `search`, once for each setting; a learning counts as the turn it cites, and takes its own place."""
    measured = [Measured() for _ in settings]
    for workspace in data.workspaces:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            async with (
                stores(folder) as (transcript, memory, log, projection),
                embedding(folder, transcript, embedder) as (meaning, caught_up),
            ):
                turns = 0
                for question, new, learned in asked_in_order(workspace):
                    write_turns(log, new)
                    await caught_up(turns := turns + len(new))
                    if embedder is not None:
                        # Its time is not the search's.
                        await embedder.embed(piece(parse_query(question.text).text), question=True)
                    if learnings:
                        write_learnings(projection, learned, workspace.turns)
                    for setting, into in zip(settings, measured, strict=True):
                        started = time.process_time()
                        with set_to(setting):
                            hits = HITS[data.measure]
                            found = await search(transcript, memory, question.text, hits, meaning=meaning)
                        into.milliseconds.append((time.process_time() - started) * 1000)
                        places = _places([hit.turn_id for hit in found.hits])
                        into.recalls.append(question.recall(places, workspace.turns, data.measure))
    return measured


def _places(turns: Sequence[int | None]) -> list[int]:
    """Hits as places of turns; a turn told again takes a place with nothing in it."""
    seen: set[int | None] = {None}
    places = []
    for empty, turn in enumerate(turns, start=1):
        places.append(-empty if turn in seen or turn is None else turn - 1)
        seen.add(turn)
    return places


def cells(recall: Recall) -> str:
    """Recall at each depth, as a cell of the table."""
    return " / ".join(f"{value:4.1f}" for value in recall)


def better(whole: Measured, person: Measured) -> float:
    """Recall at 10 of the better plain ranking."""
    return max(whole.mean[AT_10], person.mean[AT_10])


def by_class(data: DataSet, columns: Sequence[Measured]) -> None:
    """A line for each class of question, at 10."""
    kinds = data.kinds
    for kind in sorted(set(kinds)):
        places = [place for place, name in enumerate(kinds) if name == kind]
        values = [statistics.fmean(column.recalls[place][AT_10] for place in places) for column in columns]
        print(f"    {kind[:38]:<38} {len(places):>5}   {'   '.join(f'{value:5.1f}' for value in values)}", flush=True)


async def table(sets: Sequence[DataSet], *, classes: bool, embedder: Embedder | None = None) -> None:
    """One line a set."""
    print(f"{'':<26} questions   plain, whole         person's side        search_memory, with learnings, by meaning")
    print(f"{'recall at ' + ' / '.join(map(str, DEPTHS)):<38}{'':<63}x better plain at 10   ms, median (95 %)")
    for data in sets:
        columns = [plain(data, person_only=False), plain(data, person_only=True), *await ours(data)]
        if data.has_learnings:
            columns += await ours(data, learnings=True)
        if embedder is not None:
            columns += await ours(data, embedder=embedder)
        base = better(*columns[:2])
        ratios = " ".join(f"{column.mean[AT_10] / base:.3f}" for column in columns[2:])
        taken = statistics.quantiles(columns[2].milliseconds, n=20)
        print(
            f"{data.name:<26} {len(columns[0].recalls):>9}   {'   '.join(cells(column.mean) for column in columns)}"
            f"   x {ratios}   {taken[9]:.1f} ({taken[18]:.1f})",
            flush=True,
        )
        if classes:
            by_class(data, columns)


async def leave_one_out(sets: Sequence[DataSet]) -> None:
    """Settings chosen on all sets but one (by the mean ratio at 10 to the better plain ranking), measured on that."""
    ratios = []
    for data in sets:
        base = better(plain(data, person_only=False), plain(data, person_only=True))
        ratios.append([measured.mean[AT_10] / base for measured in await ours(data, SETTINGS)])
    print("constants                        mean  " + "  ".join(data.name[:14] for data in sets))
    for setting, values in zip(SETTINGS, zip(*ratios, strict=True), strict=True):
        print(
            f"{setting or 'as shipped'!s:<32} {statistics.fmean(values):.3f}  {'  '.join(f'{v:.3f}' for v in values)}"
        )
    for left, data in enumerate(sets):
        rest = [values for place, values in enumerate(ratios) if place != left]
        others = [statistics.fmean(column) for column in zip(*rest, strict=True)]
        best = others.index(max(others))
        print(
            f"{data.name:<26} constants of the others {SETTINGS[best] or 'as shipped'}: x {ratios[left][best]:.3f} "
            f"(shipped {ratios[left][0]:.3f})"
        )


async def main(arguments: argparse.Namespace) -> None:
    """Prints the table, and what was asked for beside it."""
    sets = [data for data in load(arguments.folder) if not arguments.only or data.name in arguments.only]
    sets += [data.together() for data in sets if data.name in arguments.together]
    embedder = None
    if arguments.meaning:
        # Its sandbox hides the workspace.
        embedder = CachedEmbedder(ProcessEmbedder(Settings(Path(tempfile.mkdtemp()))), arguments.meaning)
    await table(sets, classes=arguments.classes, embedder=embedder)
    if embedder is not None:
        await embedder.release()
    if arguments.leave_one_out:
        await leave_one_out(sets)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="the sets, a JSON file each")
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="these sets")
    parser.add_argument(
        "--together", nargs="*", default=[], metavar="NAME", help="also all of this set in one workspace"
    )
    parser.add_argument("--classes", action="store_true", help="each class of question, at 10")
    parser.add_argument("--meaning", type=Path, metavar="FILE", help="also by meaning; vectors are kept in this file")
    parser.add_argument("--leave-one-out", action="store_true", help="constants chosen on the other sets")
    asyncio.run(main(parser.parse_args()))
