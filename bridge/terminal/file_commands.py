"""Commands for the person's files on the sprite's computer: list, copy and delete."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from rich.table import Table
from rich.text import Text

from bridge.terminal import drawing
from bridge.terminal.command import WAYS, Command
from bridge.terminal.drawing import counted, one_line, sized
from bridge.terminal.memory_commands import when
from sprite.protocol.memory import DeleteUserFileRequest, DeleteUserFileResult, UserFilesRequest, UserFilesResult
from sprite.protocol.shapes import FILE_FOLDERS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from bridge.terminal.command import Asking
    from bridge.terminal.conversation import Conversation
    from bridge.terminal.terminal import Screen
    from sprite.protocol.shapes import UserFile

    #: Yields a file of the sprite by its path. Raises NotFetchedError.
    Fetch = Callable[[str], AsyncIterator[bytes]]

_LISTED = 40


class NotFetchedError(Exception):
    """A file could not be fetched; the message is for people."""


class FileCommands:
    """The commands of one conversation; `table` maps names to commands."""

    def __init__(self, conversation: Conversation, screen: Screen, asking: Asking, fetch: Fetch) -> None:
        self._conversation = conversation
        self._screen = screen
        self._asking = asking
        self._fetch = fetch
        self.table = {
            "/files": Command("/files [FOLDER]", "your files on the sprite's computer, newest first", self._files),
            "/get": Command("/get PATH", "copies one of them into the folder you are in", self._get),
            "/rm": Command("/rm PATH", "deletes one of them, for good; asks first", self._rm),
        }

    async def _files(self, folder: str) -> None:
        found = await self._asking.look(UserFilesRequest(folder.strip("/") or None), UserFilesResult)
        if found is None:
            return
        if not found.files:
            await self._screen.line(drawing.note(f"no files yet in {folder or ', '.join(FILE_FOLDERS)}"))
            return
        await self._screen.show(_listed(found.files[:_LISTED]))
        more = len(found.files) - _LISTED + found.more if len(found.files) > _LISTED else found.more
        if more:
            hint = "" if folder else "; /files FOLDER lists one folder"
            await self._screen.line(drawing.note(f"and {counted(more, 'older file')}{hint}"))

    async def _get(self, path: str) -> None:
        if not path:
            await self._screen.show(drawing.problem("Which file?", "/get PATH; /files lists them."))
            return
        name = one_line(path.rpartition("/")[2]) or "file"
        try:
            with self._conversation.busy(f"fetching {name}"):
                target = await self._copied(path, name)
        except NotFetchedError as error:
            await self._screen.show(drawing.problem(str(error), "/files lists what there is."))
        except OSError as error:
            await self._screen.show(drawing.problem(f"Not copied: {error.strerror or error}.", one_line(Path.cwd())))
        else:
            await self._screen.line(drawing.note(f"✓ copied to {one_line(target)}"))

    async def _copied(self, path: str, name: str) -> Path:
        """Write the file under an unused name. An incomplete file is removed."""
        target, file = await asyncio.to_thread(_fresh, Path.cwd(), name)
        is_whole = False
        try:
            with file:
                async for chunk in self._fetch(path):
                    await asyncio.to_thread(file.write, chunk)
            is_whole = True
        finally:
            if not is_whole:
                target.unlink(missing_ok=True)
        return target

    async def _rm(self, path: str) -> None:
        if not path:
            await self._screen.show(drawing.problem("Which file?", "/rm PATH; /files lists them."))
            return
        with self._conversation.busy("yes or no"):
            question = f"Delete {one_line(path)}? It cannot be undone. Type yes; anything else is a no."
            said = await self._screen.ask(question)
        if said.lower() != "yes":
            await self._screen.line(drawing.note("Nothing was deleted."))
        elif await self._asking.look(DeleteUserFileRequest(path), DeleteUserFileResult) is not None:
            await self._screen.line(drawing.note(f"{one_line(path)} is deleted"))


def _fresh(folder: Path, name: str) -> tuple[Path, BinaryIO]:
    """Create a new file. A used name gets a number."""
    stem, suffix = Path(name).stem, Path(name).suffix
    number = 1
    while True:
        target = folder / (name if number == 1 else f"{stem} ({number}){suffix}")
        try:
            return target, os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")
        except FileExistsError:
            number += 1


def _listed(files: list[UserFile]) -> Table:
    drawn = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    drawn.add_column(overflow="fold")
    drawn.add_column(style="dim", no_wrap=True, justify="right")
    drawn.add_column(style="dim", no_wrap=True)
    for file in files:
        drawn.add_row(Text(one_line(file.path)), Text(sized(file.size)), Text(when(file.modified_at)))
    return drawn


if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bridge.terminal.conversation import Conversation
    from bridge.terminal.terminal import Screen

    #: Asks the bridge to restore the person's agent in one of the ways of `POST /restore`, and returns its message.
    #: Raises NotRestoredError.
    Restore = Callable[[str], Awaitable[str]]


class NotRestoredError(Exception):
    """The agent was not restored; the message is for people."""


class RestoreCommand:
    """The command of one conversation; `table` maps its name to it."""

    def __init__(self, conversation: Conversation, screen: Screen, restore: Restore) -> None:
        self._conversation = conversation
        self._screen = screen
        self._restore = restore
        self.table = {
            "/restore": Command(
                "/restore [new | kept | as-it-is]",
                "makes your agent anew of what is kept, where it is gone; or as it is offered",
                self._run,
            )
        }

    async def _run(self, rest: str) -> None:
        if (way := WAYS.get(rest.strip())) is None:
            usage = "/restore, /restore new, /restore kept or /restore as-it-is."
            await self._screen.show(drawing.problem("That is no way to restore.", usage))
            return
        try:
            with self._conversation.busy("restoring your agent"):
                words = await self._restore(way)
        except NotRestoredError as error:
            await self._screen.show(drawing.problem(str(error)))
        else:
            await self._screen.line(drawing.note(f"✓ {words}"))
