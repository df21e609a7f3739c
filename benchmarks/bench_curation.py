"""Replay histories of a person's weeks with recorded answers, and count what memory holds.

    python -m benchmarks.bench_curation [--slips] [--verbose]
    python -m benchmarks.bench_curation --history FILE --answers FOLDER
    python -m benchmarks.bench_curation --history FILE --variant NAME

The histories of this repository are in `histories/`, the answers to each in `histories/NAME.answers/`, with a folder
for each independent recording; one from elsewhere has its answers in a folder beside it, or in itself, as a variant. A
request without an answer is written into the folder, with words that say what to do (recordings.py). An answer to
another request than today's is replayed all the same, and counted; `--fresh` asks again. Every request depends on the
answers before it.

Held is what a line of a curated file or an open action says, whichever file, and, where a history says that something
is for the archive, what a valid learning says; "in its place" looks where the history says it belongs. A refused line
is true if it says something that is wanted or if a later curation may write it; it is lost if what it says is held
nowhere at the end. `--slips` replays the same answers with a full stop too much in each quote, one word in ten of each
quote wrong, and one line of a file lost in each answer.

Another commit is measured with this code and the same recordings from a worktree of it:

    git worktree add ../then COMMIT && cd ../then && PYTHONPATH=.:$OLDPWD python -m benchmarks.bench_curation
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.answer_slips import SLIPS, seeded
from benchmarks.curation_replay import HITS, ReplayError, replay
from benchmarks.curation_score import Run, Score, score
from benchmarks.history import History, load, shipped
from benchmarks.recordings import NotRecordedError, Recordings

NAME_WIDTH, CELL_WIDTH = 54, 14
WANTED_SHARE = 0.94
MOST_UNWANTED_LEARNINGS = 1
#: A run with slips may hold so many fewer.
SLIPS_MAY_COST = 2
BESIDE_TURNS_BYTES = 30_000


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the table: what a replay came to, and what is wanted of it, if anything is."""

    name: str
    value: Callable[[History, Run, Score], str]
    wanted: str = ""
    ok: Callable[[History, Run, Score], bool] | None = None


def _of(found: int, all_: int) -> str:
    return f"{found} of {all_}"


def _held(history: History, missing: Sequence[object]) -> str:
    return _of(len(history.wanted) - len(missing), len(history.wanted))


def _per_100_turns(history: History, run: Run) -> float:
    return run.usd / len(history.turns) * 100


ROWS = (
    Row(
        "held in files or open actions, the archive's there",
        lambda h, _, s: _held(h, s.missing_for_boot),
        f">= {WANTED_SHARE:.0%}",
        lambda h, _, s: len(h.wanted) - len(s.missing_for_boot) >= WANTED_SHARE * len(h.wanted),
    ),
    Row("held in files or open actions", lambda h, _, s: _held(h, s.missing)),
    Row("held in its own place", lambda h, _, s: _held(h, s.missing_in_place)),
    Row("held anywhere, valid learnings included", lambda h, _, s: _held(h, s.missing_anywhere)),
    Row(
        "unwanted in files or open actions",
        lambda h, _, s: _of(len(s.unwanted), len(h.unwanted)),
        "none",
        lambda _h, _r, s: not s.unwanted,
    ),
    Row(
        "unwanted in valid learnings",
        lambda h, _, s: _of(len(s.unwanted_learnings), len(h.unwanted)),
        f"<= {MOST_UNWANTED_LEARNINGS}",
        lambda _h, _r, s: len(s.unwanted_learnings) <= MOST_UNWANTED_LEARNINGS,
    ),
    Row(
        "lines refused / of them true / lost",
        lambda _h, _r, s: f"{len(s.refused)} / {len(s.refused_true)} / {len(s.refused_lost)}",
        "none lost",
        lambda _h, _r, s: not s.refused_lost,
    ),
    Row("whole files refused", lambda _h, _r, s: str(len(s.files_refused)), "0", lambda _h, _r, s: not s.files_refused),
    Row("superseded / refused", lambda _h, r, s: f"{r.memory.superseded} / {len(s.supersede_refused)}"),
    Row(
        "closable actions closed (ever opened)",
        lambda h, _, s: (
            f"{_of(len(h.closable) - len(s.left_open), len(h.closable))} ({len(h.closable) - len(s.never_opened)})"
        ),
        "all",
        lambda _h, _r, s: not s.left_open,
    ),
    Row("valid learnings / open actions", lambda _h, r, _s: f"{len(r.memory.learnings)} / {len(r.memory.actions)}"),
    Row(f"questions: a turn of the answer in {HITS} hits", lambda h, _, s: _of(s.turn_found, len(h.questions))),
    Row(f"questions: the answer in {HITS} hits", lambda h, _, s: _of(s.answer_found, len(h.questions))),
    Row("questions: ... or in files or open actions", lambda h, _, s: _of(s.answer_known, len(h.questions))),
    Row("answers, bytes together", lambda _h, r, _s: f"{sum(served.answer for served in r.served):,}"),
    Row("prompts, bytes at most", lambda _h, r, _s: f"{max(served.prompt for served in r.served):,}"),
    Row(
        "prompts beside the turns, bytes at most",
        lambda _h, r, _s: f"{max(served.beside for served in r.served):,}",
        f"<= {BESIDE_TURNS_BYTES:,}",
        lambda _h, r, _s: max(served.beside for served in r.served) <= BESIDE_TURNS_BYTES,
    ),
    Row("$ per 100 turns", lambda h, r, _s: f"{_per_100_turns(h, r):.4f}"),
    Row(
        "answers recorded for another request",
        lambda _h, r, _s: _of(sum(not served.same_request for served in r.served), len(r.served)),
    ),
)


def table(history: History, runs: dict[str, Run]) -> None:
    """Prints one line a figure, one column a run."""
    scores = {name: score(history, run) for name, run in runs.items()}
    print(f"      {'':<{NAME_WIDTH}}{''.join(f'{name:<{CELL_WIDTH}}' for name in runs)}")
    for row in ROWS:
        cells = [f"{row.value(history, run, scores[name]):<{CELL_WIDTH}}" for name, run in runs.items()]
        ok = row.ok is None or all(row.ok(history, run, scores[name]) for name, run in runs.items())
        mark = "    " if row.ok is None else "ok  " if ok else "MISS"
        print(f"{mark}  {row.name:<{NAME_WIDTH}}{''.join(cells)}{f' wanted {row.wanted}' if row.wanted else ''}")
    missing = [len(counted.missing_for_boot) for counted in scores.values()]
    if len(missing) > 1:
        most = max(missing) - missing[0]
        mark = "ok  " if most <= SLIPS_MAY_COST else "MISS"
        print(
            f"{mark}  {'held fewer with slips, at most':<{NAME_WIDTH}}{most:<{CELL_WIDTH}} wanted <= {SLIPS_MAY_COST}"
        )


def details(history: History, name: str, run: Run) -> None:
    """Prints what the figures count."""
    counted = score(history, run)
    held_in_learnings = [item for item in counted.missing if item not in counted.missing_anywhere]
    parts = {
        "held nowhere": [f"{item.id} {item.what}" for item in counted.missing_anywhere],
        "held in learnings only": [f"{item.id} {item.what}" for item in held_in_learnings],
        "unwanted": [f"{item.id} {item.what}: {line}" for item, line in counted.unwanted],
        "unwanted as a valid learning": [f"{item.id} {item.what}: {line}" for item, line in counted.unwanted_learnings],
        "lines refused": [
            f"{'LOST' if said in counted.refused_lost else 'true' if said in counted.refused_true else '    '} {said}"
            for said in counted.refused
        ],
        "files refused": counted.files_refused,
        "superseding refused": counted.supersede_refused,
        "left open": [f"{action.what} (asked in turn {action.asked})" for action in counted.left_open],
        "never opened": [action.what for action in counted.never_opened],
        "other reports": [f"{times} {kind}" for kind, times in counted.other_reports.items()],
        "requests": [
            f"{served.turns}: {served.prompt:,} bytes, {served.beside:,} beside the turns, answer {served.answer:,}"
            for served in run.served
        ],
    }
    print(f"\n  {name}")
    for title, lines in parts.items():
        print(f"    {title}: {len(lines)}")
        print("".join(f"      {line}\n" for line in lines), end="")


async def measure(path: Path, recordings: Recordings, arguments: argparse.Namespace) -> None:
    """Replays one history, as recorded and with slips, and prints its table."""
    history = load(path)
    answers = history.answers.get(arguments.variant or "", {})
    cuts = frozenset(int(turns.rpartition("t")[2]) for turns in answers)
    names = SLIPS if arguments.slips else ["recorded"]
    runs = {name: await replay(history, recordings, seeded(name), cuts) for name in names}
    recording = arguments.variant or (recordings.folder.name if recordings.folder else "")
    print(f"{path.stem}, {recording}: {len(history.turns)} turns in {len(runs['recorded'].served)} batches")
    table(history, runs)
    if arguments.verbose:
        for name, run in runs.items():
            details(history, name, run)
    print(flush=True)


def _recordings(path: Path, arguments: argparse.Namespace) -> list[Recordings]:
    if arguments.variant:
        return [Recordings.of_answers(load(path).answers[arguments.variant])]
    folders = [arguments.answers] if arguments.answers else sorted(path.with_suffix(".answers").iterdir())
    asked = {"fresh": arguments.fresh, "answered_by": arguments.answered_by, "model": arguments.model}
    return [Recordings.of_folder(folder, **asked) for folder in folders]


def main() -> int:
    """Prints a table for each history; 2 if an answer is missing."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--history", type=Path, help="a history from elsewhere")
    parser.add_argument("--answers", type=Path, help="the folder of its recorded answers")
    parser.add_argument("--variant", help="the recorded answers in the history itself, by this name")
    parser.add_argument("--slips", action="store_true", help="replay it with each slip as well")
    parser.add_argument("--verbose", action="store_true", help="say what the figures count")
    parser.add_argument("--fresh", action="store_true", help="an answer to another request counts as none")
    parser.add_argument("--answered-by", default="", help="how a new answer was made, for its record")
    parser.add_argument("--model", default="", help="the model that gave it")
    arguments = parser.parse_args()
    if bool(arguments.history) != bool(arguments.answers or arguments.variant):
        parser.error("--history goes with --answers or --variant")
    if arguments.variant and arguments.variant not in (known := load(arguments.history).answers):
        parser.error(f"the history's variants are {', '.join(known)}")
    # The table has the processor's warnings.
    logging.getLogger("sprite").setLevel(logging.CRITICAL)
    for path in [arguments.history] if arguments.history else shipped():
        try:
            for recordings in _recordings(path, arguments):
                asyncio.run(measure(path, recordings, arguments))
        except (NotRecordedError, ReplayError) as error:
            print(f"{path.stem}: {error}", file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
