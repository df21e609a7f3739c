"""Corrections in the histories that a rule can express: requests for a model, and a score of its answers.

    python -m benchmarks.bench_rule_proposals requests FOLDER [--developer FILE ANSWERS]
    python -m benchmarks.bench_rule_proposals score FOLDER

`requests` replays the recordings and writes the curator's request of each batch that has one of the corrections of
rule_corrections.json, as NAME.system.txt and NAME.user.txt. The answer, laid beside them as NAME.answer.txt, is scored:
a rule counts if it cites the correction's turn, is about every call that the correction forbids, and about none of the
calls beside them. The reference rules of that file must count as well.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.curation_replay import replay
from benchmarks.history import FOLDER, load, shipped
from benchmarks.recordings import Recording, Recordings, Request
from benchmarks.report import line
from sprite.curation.answer import parse_response
from sprite.curation.answer_files import read_line
from sprite.errors import PeerError
from sprite.rules.check import Book, Facts
from sprite.rules.condition import parse

WANTED_SHARE = 0.8
NOON = datetime(2026, 12, 1, 12, 0)  # noqa: DTZ001 - the person's own wall clock


class Correction(msgspec.Struct):
    """A correction of a history, a rule that expresses it, and calls: (tool, input), maybe in a project on a branch.

    A rule may also be about `or_stops` in place of `stops`.
    """

    history: str
    turns: list[int]
    what: str
    rule: str
    stops: list[list[Any]]
    runs: list[list[Any]]
    or_stops: list[list[Any]] = []


def corrections() -> list[Correction]:
    """The corrections that are counted."""
    path = Path(__file__).with_name("rule_corrections.json")
    return msgspec.json.decode(path.read_bytes(), type=list[Correction])


def expresses(text: str, wanted: Correction) -> bool:
    """Whether a rule in one line is about the forbidden calls, and about no other."""
    try:
        rule = Book([(1, parse(text))])
    except PeerError:
        return False
    with tempfile.TemporaryDirectory() as name:
        is_complete = any(
            calls and all(_is_about(rule, call, Path(name)) for call in calls)
            for calls in (wanted.stops, wanted.or_stops)
        )
        return is_complete and not any(_is_about(rule, call, Path(name)) for call in wanted.runs)


def _is_about(rule: Book, call: list[Any], folder: Path) -> bool:
    tool, tool_input, *place = call
    if place:
        project, branch = place
        folder /= project
        (folder / ".git").mkdir(parents=True, exist_ok=True)
        (folder / ".git/HEAD").write_text(f"ref: refs/heads/{branch}\n")
    return bool(rule.find(Facts(tool, tool_input, str(folder), NOON)))


class Kept(Recordings):
    """Recordings that keep the requests of some batches."""

    def __init__(self, recordings: Recordings, turns: set[int]) -> None:
        super().__init__(recordings.folder, recordings.answers)
        self.turns = turns
        self.kept: dict[str, Request] = {}

    def answer(self, request: Request) -> Recording:
        """The recorded answer; the request is kept if its batch has one of the turns."""
        if not request.turns.endswith(" verified") and self.turns.intersection(_range(request.turns)):
            self.kept[request.turns] = request
        return super().answer(request)


def _range(turns: str) -> range:
    first, _, last = turns.replace("t", "").partition("-")
    return range(int(first), int(last) + 1)


async def write_requests(histories: Iterable[tuple[Path, Path]], folder: Path) -> None:
    """Write the requests of all batches that have a correction."""
    folder.mkdir(parents=True, exist_ok=True)
    for path, answers in histories:
        wanted = {turn for each in corrections() if each.history == path.stem for turn in each.turns}
        recordings = Kept(Recordings.of_folder(answers), wanted)
        await replay(load(path), recordings, None)
        for turns, request in recordings.kept.items():
            (folder / f"{path.stem}-{turns}.system.txt").write_text(request.system, encoding="utf-8")
            (folder / f"{path.stem}-{turns}.user.txt").write_text(request.user, encoding="utf-8")
            print(f"{path.stem} {turns}: {len(request.user.encode()):,} bytes")


def proposed(folder: Path) -> Iterator[tuple[str, int | None, str]]:
    """Yield the rules in the answers: the history, the cited turn and the rule."""
    for path in sorted(folder.glob("*.answer.txt")):
        history = path.name.rpartition("-t")[0].rpartition("-t")[0]
        for text in parse_response(path.read_text(encoding="utf-8")).rules:
            read = read_line(text)
            yield history, read.turn_id, read.text


def score(folder: Path) -> None:
    """Print what was proposed, and how much of it expresses a correction."""
    found = list(proposed(folder))
    wanted = corrections()
    hits, used = 0, set()
    for each in wanted:
        near = [rule for history, turn, rule in found if history == each.history and turn in each.turns]
        good = [rule for rule in near if expresses(rule, each)]
        hits += bool(good)
        used.update(good)
        print(f"{'ok  ' if good else 'MISS'}  {each.history} t{each.turns[0]}: {each.what}")
        for rule in near:
            print(f"        {'+' if rule in good else '-'} {rule}")
    for history, turn, rule in found:
        if rule not in used:
            print(f"  also  {history} t{turn}: {rule}")
    share = hits / len(wanted)
    line(
        "corrections proposed correctly", f"{hits} of {len(wanted)}", f">= {WANTED_SHARE:.0%}", ok=share >= WANTED_SHARE
    )


def main() -> None:
    """Write requests, or score answers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("do", choices=["requests", "score"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--developer", nargs=2, type=Path, metavar=("FILE", "ANSWERS"), help="one more history")
    given = parser.parse_args()
    if given.do == "score":
        score(given.folder)
        return
    histories = [(path, FOLDER / f"{path.stem}.answers/1") for path in shipped()]
    asyncio.run(write_requests([*histories, *([tuple(given.developer)] if given.developer else [])], given.folder))


if __name__ == "__main__":
    main()
