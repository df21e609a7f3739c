"""The files of the workspace that came from outside, and what a tool call may read of them.

A file comes from outside by an upload, by a connection, or by a change in a turn whose commands had network traffic. A
copy of such a file comes from outside, too. The marks are in workspace.db.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from sprite.log.file_table import trace_of
from sprite.undo.scan import Entry
from sprite.workspace.file_changes import FileChange, FileChanges

_BETWEEN_WORDS = re.compile(r"[\s'\"`=;|&<>(){},:]+")
_WILDCARD = re.compile(r"[*?\[$]")
#: Words of a command that are looked at as paths.
_MOST_WORDS = 500
#: The name of a file whose name the person had forgotten.
_NAMELESS = "[forgotten]"


class OutsideFiles:
    """Mark the workspace's files that came from outside, and find out whether a tool call may read one."""

    def __init__(self, table: FileChanges, workspace: Path) -> None:
        self._table = table
        self._workspace = workspace.resolve()
        self._origins: dict[str, str] = {}
        self._traces: frozenset[bytes] = frozenset()
        #: Each folder with a file from outside below it, and one such file.
        self._holding: dict[str, str] = {}

    async def load(self) -> None:
        """Load the marks."""
        rows = await self._table.outside()
        self._origins = {os.fsdecode(path): origin for path, origin in rows.items() if path >= b"\1"}
        self._traces = frozenset(path for path in rows if path < b"\1")
        self._index()

    async def add(self, came: Mapping[str, str], gone: Collection[str] = ()) -> None:
        """Mark the files in `came` (path to origin) as from outside, and remove the marks of `gone` files."""
        gone = [path for path in gone if path in self._origins]
        came = {path: origin for path, origin in came.items() if self._origins.get(path) != origin}
        if not came and not gone:
            return
        await self._table.mark_outside(came, gone)
        self._origins = {path: origin for path, origin in self._origins.items() if path not in gone} | came
        self._index()

    async def changed(
        self, changes: Sequence[FileChange], states: Mapping[str, Entry], origin: str | None, own: Collection[str]
    ) -> None:
        """Mark the files that a turn changed as from outside, if the turn had network traffic or copied such a file.

        `origin` is that of the network traffic, or None without any. `states` are the states of all files
        before the turn; files in `own`, whose whole content the agent wrote, are not marked.
        """
        copies = {entry.sha256: known for path, known in self._origins.items() if (entry := states.get(path))}
        came = {}
        for each in changes:
            found = copies.get(each.after) if each.after else None
            if each.kind != "deleted" and not each.is_yours and each.path not in own and (origin or found):
                came[each.path] = origin or found or ""
        await self.add(came, [each.path for each in changes if each.kind == "deleted"])

    def source_of(self, path: Path) -> str | None:
        """Return the source of a file from outside, or of a folder that contains one; None for any other path."""
        relative = self._relative(path)
        if relative is None:
            return None
        if relative in self._holding:
            return f"file:{self._holding[relative]}"
        if self._traces and trace_of(relative) in self._traces:
            return f"file:{_NAMELESS}"
        # Of a folder that programs fill, such as node_modules, only the folder is known.
        lineage = [relative, *map(str, Path(relative).parents)]
        return next((f"file:{each}" for each in lineage if each in self._origins), None)

    def source_in(self, command: str, cwd: Path) -> str | None:
        """Return the source of a file from outside that a command may read, or None.

        Such a file is below the command's folder, or below a path that the command names.
        """
        if not self._origins and not self._traces:
            return None
        words = _BETWEEN_WORDS.split(command)
        paths = [cwd, *(cwd / _fixed(word) for word in words[:_MOST_WORDS])]
        if len(words) > _MOST_WORDS:
            paths.append(self._workspace)
        return next((source for path in paths if (source := self.source_of(path)) is not None), None)

    def _relative(self, path: Path) -> str | None:
        try:
            return str(path.resolve().relative_to(self._workspace))
        except (OSError, RuntimeError, ValueError):
            return None

    def _index(self) -> None:
        self._holding = {str(folder): path for path in self._origins for folder in Path(path).parents}


def _fixed(word: str) -> str:
    """Return a path with `~` expanded, cut to the folder above its first wildcard or variable."""
    fixed = _WILDCARD.split(word, maxsplit=1)[0]
    return (word if fixed == word else fixed.rpartition("/")[0]).replace("~", str(Path.home()), 1)
