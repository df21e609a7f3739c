"""`/changes` shows the files that a turn changed, `/undo` takes them back."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from rich.console import Group
from rich.text import Text

from bridge.terminal import drawing
from bridge.terminal.command import MODEL_SECONDS, Command, CommandGroup
from bridge.terminal.drawing import counted, exact, one_line
from sprite.protocol.memory import ChangesRequest, ChangesResult, UndoRequest, UndoResult

if TYPE_CHECKING:
    from rich.console import RenderableType

    from sprite.protocol.shapes import ChangedFile


_KINDS = {"added": ("+ ", "green"), "modified": ("~ ", "yellow"), "deleted": ("- ", "red")}
_LINES = {"+": "green", "-": "red", "@": "cyan"}
#: Lines shown of one diff.
_MOST_LINES = 60
_USAGE = "/undo [TURN] [FILE...] [--over FILE...]; TURN is a number as /search shows it, or the id of an undo."


class ChangeCommands(CommandGroup):
    """The commands of one conversation."""

    @property
    def table(self) -> dict[str, Command]:
        """Return the commands by name."""
        return {
            "/changes": Command("/changes [TURN]", "which files the last or another turn changed", self._changes),
            "/undo": Command("/undo [TURN] [FILE...]", "takes the file changes of a turn back", self._undo),
        }

    async def _changes(self, rest: str) -> None:
        found = await self.look(ChangesRequest(rest.strip() or None), ChangesResult)
        if found is not None:
            await self._screen.show(changed(found))

    async def _undo(self, rest: str) -> None:
        try:
            words = shlex.split(rest)
        except ValueError:
            await self._screen.show(drawing.problem("A quotation mark is missing.", _USAGE))
            return
        turn = words.pop(0) if words and (words[0].isdigit() or words[0].startswith("undo-")) else None
        at = words.index("--over") if "--over" in words else len(words)
        request = UndoRequest(turn, words[:at] or None, words[at + 1 :])
        done = await self.look(request, UndoResult, "undoing", MODEL_SECONDS)
        if done is not None:
            await self._screen.show(undone(done))


def changed(found: ChangesResult) -> RenderableType:
    """Draw a change set with diffs."""
    name = f"Turn {found.turn_id}" if found.turn_id is not None else one_line(found.turn)
    drawn = [Text.assemble((name, "bold"), (" (undone)" if found.undone_by else "", "yellow"))]
    for file in found.files:
        drawn.append(_file(file))
        lines = (file.diff or "").split("\n")
        drawn += [exact(line, style=_LINES.get(line[:1], "dim")) for line in lines[:_MOST_LINES] if line]
        if len(lines) > _MOST_LINES:
            drawn.append(Text(f"and {counted(len(lines) - _MOST_LINES, 'line')} more", style="dim"))
    if found.more:
        drawn.append(Text(f"and {counted(found.more, 'file')} more", style="dim"))
    return Group(*drawn)


def _file(file: ChangedFile) -> Text:
    sign, style = _KINDS[file.kind]
    marks = "" if file.kept else " (not kept: cannot be undone)"
    marks += " (maybe yours: undone when named)" if file.yours else ""
    return Text.assemble((sign, style), one_line(file.path), (marks, "dim"))


def undone(done: UndoResult) -> RenderableType:
    """Draw the result of an undo."""
    groups = (
        ("restored: ", done.restored),
        ("changed since, and left (--over FILE restores it): ", done.conflicts),
        ("maybe yours, and left (name it to restore it): ", done.yours),
        ("not kept, and left: ", done.unkept),
    )
    drawn = [Text.assemble((words, "dim"), one_line(path)) for words, paths in groups for path in paths]
    if done.undo is not None:
        drawn.append(Text(f"/undo {one_line(done.undo)} takes this back.", style="dim"))
    return Group(*drawn) if drawn else Text("Nothing to restore: the files are as they were before.")
