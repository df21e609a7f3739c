"""The outcome of an import, for people and for programs."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from sprite.commands.output import say, warn
from sprite.config import Settings
from sprite.memory.importing.proposals import Proposed
from sprite.memory.importing.reader import Note, Tally
from sprite.protocol.lines import one_line

EXIT_SOME_REFUSED = 1
EXIT_NOTHING_READ = 2


@dataclass(slots=True)
class Report:
    """The outcome of an import; `turns` and `known` are by kind of file."""

    tally: Tally
    turns: Counter[str] = field(default_factory=Counter)
    known: Counter[str] = field(default_factory=Counter)
    sessions: set[str] = field(default_factory=set)
    notes: list[Note] = field(default_factory=list)
    #: Number of notes that an earlier import proposed.
    notes_known: int = 0
    proposed: Proposed = field(default_factory=Proposed)

    @property
    def exit_code(self) -> int:
        """Exit code: 0, or the code for the extent of refusals."""
        if self.tally.refusals and not self.tally.files and not self.tally.not_understood:
            return EXIT_NOTHING_READ
        return EXIT_SOME_REFUSED if self.tally.refusals else 0


def facts(report: Report, waiting: int) -> dict[str, Any]:
    """Return the outcome for programs; `waiting` turns are not curated yet."""
    tally, proposed = report.tally, report.proposed
    return {
        "files": tally.files,
        "sessions": len(report.sessions),
        "turns": report.turns.total(),
        "already_imported": report.known.total(),
        "still_open": tally.open,
        "kinds": {
            kind: {"turns": report.turns[kind], "already_imported": report.known[kind]}
            for kind in report.turns
            if report.turns[kind] + report.known[kind]
        },
        "own_sessions": sorted(tally.own),
        "damaged_lines": tally.damaged,
        "damaged": [{"file": str(path), "line": line, "problem": problem} for path, line, problem in tally.named],
        "not_understood": dict(tally.not_understood.most_common()),
        "proposed": [{"from": origin, "file": name, "lines": lines} for origin, name, lines in proposed.added],
        "no_room": [
            {"from": origin, "file": name, "lines": lines, "reason": why} for origin, name, lines, why in proposed.left
        ],
        "notes_known": report.notes_known + proposed.known,
        "refused": [{"path": str(refusal.path), "reason": refusal.reason} for refusal in tally.refusals],
        "waiting": waiting,
    }


def print_report(report: Report, settings: Settings, waiting: int, *, dry_run: bool) -> None:
    """Print the outcome for people: problems on stderr, results on stdout."""
    tally = report.tally
    for refusal in tally.refusals:
        warn(f"refused: {one_line(refusal.path)}: {refusal.reason}")
    for path, line, problem in tally.named:
        warn(f"skipped: {one_line(path)}:{line}: {one_line(problem)}")
    if tally.damaged > len(tally.named):
        warn(f"skipped: and {tally.damaged - len(tally.named)} more damaged line(s)")
    for what, number in tally.not_understood.most_common():
        warn(f"not taken: {number} x {one_line(what)}")
    done = "Would import" if dry_run else "Imported"
    has_notes = report.proposed.added or report.proposed.left or report.notes_known or report.proposed.known
    if report.turns.total() or report.known.total() or not has_notes:
        say(
            f"{done} {report.turns.total()} turn(s) of {len(report.sessions)} session(s) from {tally.files} file(s); "
            f"{report.known.total()} were in the log already."
        )
    kinds = {kind: number for kind, number in report.turns.items() if number}
    if len(kinds) > 1:
        say("  " + ", ".join(f"{kind}: {number}" for kind, number in kinds.items()))
    if tally.own:
        say(f"{len(tally.own)} session(s) are this sprite's own conversations, which it recorded itself.")
    if tally.open:
        say(f"{tally.open} turn(s) are still under way and left for the next import.")
    _print_notes(report, dry_run=dry_run)
    if waiting and not dry_run:
        calls = math.ceil(waiting / settings.batch_turns)
        when = "when it runs" if waiting >= settings.least_turns else f"once {settings.least_turns} wait"
        say(
            f"{waiting} turn(s) wait to be curated; the sprite does so {when}, in about {calls} call(s) to "
            f"{settings.curator_model}."
        )


def _print_notes(report: Report, *, dry_run: bool) -> None:
    proposed = report.proposed
    for origin, name, lines in proposed.added:
        say(f"{'Would propose' if dry_run else 'Proposed'} {lines} line(s) for {name} from {one_line(origin)}.")
    for origin, name, lines, why in proposed.left:
        warn(f"no room: {lines} line(s) of {one_line(origin)}: {why}. Shorten {name}, then import it again.")
    if known := report.notes_known + proposed.known:
        say(f"{known} note(s) say nothing that memory does not have, or were proposed before.")
    for name in proposed.contents if not dry_run else ():
        say(f"Nothing of it is memory yet: see `memory drift`, then `memory accept {name}` or `memory reject {name}`.")
