"""Score a replayed memory against its history, line by line (pure)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.history import ACTIONS, LEARNINGS, Closable, History, Unwanted, Wanted, matches
from benchmarks.recorded_model import Served
from sprite.memory.files import CURATED, template

#: Reports whose kind ends so are about something refused; those of whole files and of learnings are counted apart.
REFUSED = "_refused"
WHOLE_FILE, SUPERSEDE = "file_refused", "supersede_refused"
_REASON = re.compile(r"\A[\w.]+: .*?: (?=[-*] )", re.DOTALL)
_BULLET = re.compile(r"\A\s*(?:[-*+]|\d+[.)])\s+")
_HEADING = re.compile(r"#+\s+(.+)")


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory at a history's end; `versions` and `reports` begin with the curation that made them."""

    files: Mapping[str, str]
    #: Open ones, and all that there ever were.
    actions: Sequence[str]
    all_actions: Sequence[str]
    #: Those that nothing has superseded, and how many others there are.
    learnings: Sequence[str]
    superseded: int
    versions: Sequence[tuple[int, str, str]]
    reports: Sequence[tuple[int, str, str]]


@dataclass(frozen=True, slots=True)
class Run:
    """One replay: what memory holds, what is found for each question (turn, text), what was asked and what it cost."""

    memory: Memory
    found: Sequence[Sequence[tuple[int | None, str]]]
    served: Sequence[Served]
    usd: float


@dataclass(frozen=True, slots=True)
class Score:
    """A run, counted: lists name what counts, so that the table can say it in words."""

    missing: list[Wanted]
    #: Without what the history says the archive is for, where a valid learning has it.
    missing_for_boot: list[Wanted]
    missing_in_place: list[Wanted]
    missing_anywhere: list[Wanted]
    unwanted: list[tuple[Unwanted, str]]
    unwanted_learnings: list[tuple[Unwanted, str]]
    refused: list[str]
    refused_true: list[str]
    refused_lost: list[str]
    files_refused: list[str]
    supersede_refused: list[str]
    left_open: list[Closable]
    never_opened: list[Closable]
    other_reports: dict[str, int]
    turn_found: int
    answer_found: int
    answer_known: int


def score(history: History, run: Run) -> Score:
    """Counts a run."""
    memory = run.memory
    places = {name: list(said_lines(memory.files[name], template(name))) for name in CURATED}
    places |= {ACTIONS: list(memory.actions), LEARNINGS: list(memory.learnings)}
    read_at_boot = [line for name, lines in places.items() if name != LEARNINGS for line in lines]
    anywhere = [*read_at_boot, *memory.learnings]
    missing = [item for item in history.wanted if not _holds(read_at_boot, item.patterns)]
    missing_for_boot = [
        item for item in missing if LEARNINGS not in item.where or not _holds(memory.learnings, item.patterns)
    ]
    lines = [(made, said) for made, kind, said in memory.reports if _is_line(kind)]
    true = [(made, said) for made, said in lines if _is_true(history, memory, made, said)]
    of_kind = {kind: [said for _, other, said in memory.reports if other == kind] for _, kind, _ in memory.reports}
    hits = list(zip(history.questions, run.found, strict=True))
    return Score(
        missing=missing,
        missing_for_boot=missing_for_boot,
        missing_in_place=[
            item for item in history.wanted if not _holds((x for at in item.where for x in places[at]), item.patterns)
        ],
        missing_anywhere=[item for item in history.wanted if not _holds(anywhere, item.patterns)],
        unwanted=_found(history.unwanted, read_at_boot),
        unwanted_learnings=_found(history.unwanted, memory.learnings),
        refused=[said for _, said in lines],
        refused_true=[said for _, said in true],
        refused_lost=[said for made, said in true if _is_lost(history, memory, made, said, missing_for_boot)],
        files_refused=of_kind.get(WHOLE_FILE, []),
        supersede_refused=of_kind.get(SUPERSEDE, []),
        left_open=[action for action in history.closable if _holds(memory.actions, [action.pattern])],
        never_opened=[action for action in history.closable if not _holds(memory.all_actions, [action.pattern])],
        other_reports={kind: len(said) for kind, said in of_kind.items() if not kind.endswith(REFUSED)},
        turn_found=sum(any(turn in asked.turns for turn, _ in found) for asked, found in hits),
        answer_found=sum(_holds((text for _, text in found), [asked.pattern]) for asked, found in hits),
        answer_known=sum(
            _holds([*read_at_boot, *(text for _, text in found)], [asked.pattern]) for asked, found in hits
        ),
    )


def said_lines(content: str, shipped: str) -> Iterator[str]:
    """Return the lines of a file that its template does not have.

    A line below a heading that somebody has added is read with that heading: "Brightwell: English only".
    """
    scaffolding = set(shipped.split("\n"))
    heading = ""
    for line in content.split("\n"):
        found = _HEADING.fullmatch(line)
        if found is not None:
            heading = "" if line in scaffolding else f"{found[1]}: "
        elif line.strip() and line not in scaffolding:
            yield heading + _BULLET.sub("", line)


def _holds(lines: Iterable[str], patterns: Sequence[str]) -> bool:
    return any(matches(patterns, line) for line in lines)


def _found(unwanted: Iterable[Unwanted], lines: Sequence[str]) -> list[tuple[Unwanted, str]]:
    """Each thing that is held, with the first line that holds it."""
    return [
        (item, next(line for line in lines if matches(item.patterns, line)))
        for item in unwanted
        if _holds(lines, item.patterns)
    ]


# --- lines that were refused ---


def _is_line(kind: str) -> bool:
    return kind.endswith(REFUSED) and kind not in {WHOLE_FILE, SUPERSEDE}


def _line(said: str) -> str:
    """The line itself, of a report that gives its file and the reason first."""
    return _BULLET.sub("", _REASON.sub("", said))


def _is_true(history: History, memory: Memory, made: int, said: str) -> bool:
    """Whether a line says what is wanted, or was let in by a later curation."""
    return any(matches(item.patterns, _line(said)) for item in history.wanted) or _stands_later(memory, made, said)


def _stands_later(memory: Memory, made: int, said: str) -> bool:
    """Whether a later curation was allowed to write the line: a report has its beginning, at least."""
    wanted = _line(said)
    return any(
        later > made and _BULLET.sub("", line).startswith(wanted)
        for later, _, content in memory.versions
        for line in content.split("\n")
    )


def _is_lost(history: History, memory: Memory, made: int, said: str, missing: Sequence[Wanted]) -> bool:
    """Whether what a true line says stands nowhere at the end, in these words or in others."""
    carried = [item for item in history.wanted if matches(item.patterns, _line(said))]
    return not _stands_later(memory, made, said) and any(item in missing for item in carried)
