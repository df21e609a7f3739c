"""`changes` and `undo`: the files that a turn changed, and taking them back."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from sprite.agent.processes import end_orphans, end_programs
from sprite.cli.output import day_and_time, show
from sprite.config import Settings
from sprite.errors import WorkspaceLockedError
from sprite.owner import ask_running, owned
from sprite.protocol.memory import ChangesRequest, ChangesResult, UndoRequest, UndoResult
from sprite.protocol.shapes import ChangedFile
from sprite.undo.tracker import Tracker
from sprite.undo.undo import Undoing
from sprite.workspace.user_files import UserFiles

EXIT_LEFT = 1
_SIGNS = {"added": "+", "modified": "~", "deleted": "-"}


async def changes(settings: Settings, arguments: argparse.Namespace) -> int:
    """Print the files that a turn changed; by default, the newest turn that changed any."""
    try:
        async with _owned_files(settings) as undoing:
            found = await undoing.changes(arguments.turn)
    except WorkspaceLockedError:
        found = await ask_running(settings, ChangesRequest(arguments.turn), ChangesResult)
    name = f"Turn {found.turn_id}" if found.turn_id is not None else found.turn
    lines = [f"{name}, {day_and_time(found.at)}{', undone' if found.undone_by else ''}"]
    for file in found.files:
        lines += [_line(file), file.diff] if arguments.diff and file.diff else [_line(file)]
    return show(arguments, found, [*lines, f"and {found.more} more"] if found.more else lines)


async def undo(settings: Settings, arguments: argparse.Namespace) -> int:
    """Undo the file changes of a turn. Exit code 1 if some paths were not restored."""
    paths, over = arguments.files or None, arguments.over
    try:
        async with _owned_files(settings) as undoing:
            # An agent that outlived its sprite could still write.
            end_orphans(settings.cli_state)
            await end_programs(settings.cli_state)
            done = await undoing.undo(arguments.turn, paths, over)
    except WorkspaceLockedError:
        done = await ask_running(settings, UndoRequest(arguments.turn, paths, over), UndoResult)
    show(arguments, done, told(done))
    return EXIT_LEFT if done.conflicts or done.yours or done.unkept else 0


def told(done: UndoResult) -> list[str]:
    """Return the result of an undo as lines for people."""
    groups = (
        ("restored", done.restored),
        ("changed again since then (restored only with --over)", done.conflicts),
        ("maybe your own change (restored only if named)", done.yours),
        ("not kept", done.unkept),
    )
    lines = [f"{words}: {path}" for words, paths in groups for path in paths]
    if done.undo is not None:
        lines.append("`undo undo` takes this back.")
    return lines or ["Nothing to restore: the files are as they were before."]


@asynccontextmanager
async def _owned_files(settings: Settings) -> AsyncIterator[Undoing]:
    async with owned(settings) as own:
        tracker = Tracker(settings, own.workspace)
        undoing = Undoing(
            settings, own.workspace, own.transcript, tracker, UserFiles(settings.workspace, own.transcript)
        )
        await tracker.load()
        await undoing.finish_interrupted()
        yield undoing


def _line(file: ChangedFile) -> str:
    marks = [] if file.kept else ["not kept"]
    marks += ["maybe yours"] if file.yours else []
    if file.mode != file.mode_before and file.mode and file.mode_before:
        marks.append(f"{file.mode_before} -> {file.mode}")
    words = f" ({', '.join(marks)})" if marks else ""
    return f"{_SIGNS[file.kind]} {file.path}{words}"
