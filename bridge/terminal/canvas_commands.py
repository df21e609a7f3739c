"""Commands for the canvas and files: cards, stacks, uploads, downloads and `/restore`."""

from __future__ import annotations

import asyncio
import base64
import os
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from rich.table import Table
from rich.text import Text

from bridge.terminal import drawing
from bridge.terminal.cards import cards_in_words, draw_card, stacks_table
from bridge.terminal.command import LOOK_SECONDS, WAYS, Command, CommandGroup
from bridge.terminal.drawing import counted, one_line, sized
from bridge.terminal.memory_commands import when
from sprite.protocol.memory import DeleteUserFileRequest, DeleteUserFileResult, UserFilesRequest, UserFilesResult
from sprite.protocol.messages import (
    MAX_UPLOAD_BYTES,
    UPLOAD_CHUNK_BYTES,
    Ack,
    ArchiveStack,
    CreateCard,
    CreateStack,
    FileUpload,
    NewBlock,
    RenameStack,
    RestoreStack,
)
from sprite.protocol.shapes import FILE_FOLDERS, Stack

if TYPE_CHECKING:
    from sprite.protocol.messages import AnyCanvasInteraction
    from sprite.protocol.shapes import UserFile


_CHUNK_SECONDS = 60.0
#: A note without an answer by then is still sent once the sprite is connected.
_NOTE_SECONDS = 60.0
_PERCENT = 100
_MB = 1024 * 1024


class CanvasCommands(CommandGroup):
    """The commands of one conversation."""

    @property
    def table(self) -> dict[str, Command]:
        """Return the commands by name."""
        return {
            "/cards": Command("/cards", "the cards of the stack that you are on", self._cards),
            "/note": Command("/note TEXT", "puts a note of yours on that stack", self._note),
            "/stack": Command("/stack [N | NAME]", "goes to another stack; without one, where you are", self._stack),
            "/stacks": Command(
                "/stacks [new NAME | rename N NAME | archive N | restore N]",
                "the stacks of the canvas, by number; changes one",
                self._stacks,
            ),
            "/upload": Command("/upload PATH", "hands a file to the agent, into its documents", self._upload),
        }

    async def _cards(self, _rest: str) -> None:
        board = self._conversation.board
        for card in board.shown:
            await self._screen.show(draw_card(card.title, card.blocks))
        if len(board.shown) < len(board.cards):
            await self._screen.line(drawing.note(cards_in_words(board)))
        elif not board.cards:
            await self._screen.line(drawing.note("no cards yet: ask the agent for one, or write one with /note"))

    async def _note(self, rest: str) -> None:
        if not rest:
            await self._screen.show(drawing.problem("What shall it say?", "/note TEXT; Alt-Enter makes a new line."))
            return
        block = NewBlock("text", {"content": rest})
        note = CreateCard(title="", blocks=[block], stack_id=self._conversation.board.stack_id)
        if isinstance(await self.ask(note, "writing the note", _NOTE_SECONDS), Ack):
            await self._screen.line(drawing.note("the note is on the canvas"))

    async def _stack(self, rest: str) -> None:
        board = self._conversation.board
        if not rest:
            await self._screen.show(stacks_table(board))
        elif (stack := board.choose(rest)) is None:
            advice = "/stack lists the open ones: name one by its number or its name."
            await self._screen.show(drawing.problem(f"There is no open stack {one_line(rest)}.", advice))
        else:
            words = f"you are on the stack {one_line(stack.name)}: {counted(len(board.shown), 'card')}"
            await self._screen.line(drawing.note(f"{words}{', /cards draws' if board.shown else ''}"))

    async def _stacks(self, rest: str) -> None:
        board = self._conversation.board
        if not rest:
            await self._screen.show(stacks_table(board))
            return
        change = self._change(*rest.split(maxsplit=2))
        if change is None:
            advice = "/stacks lists them by number; then new NAME, rename N NAME, archive N or restore N."
            await self._screen.show(drawing.problem("Which stack, and what about it?", advice))
            return
        interaction, stack, words = change
        done = await self.ask(interaction, "changing the canvas", LOOK_SECONDS)
        if isinstance(done, Ack):
            # The update may arrive after the answer, so a list right after this needs the change now.
            stack.stack_id = done.stack_id or stack.stack_id
            board.stacks[stack.stack_id] = stack
            await self._screen.line(drawing.note(words))

    def _change(self, word: str, number: str = "", name: str = "") -> tuple[AnyCanvasInteraction, Stack, str] | None:
        """Parse a change of the stacks. Return the request, the changed stack and a message, or None."""
        if word == "new" and number:
            full = f"{number} {name}".strip()
            return CreateStack(full), Stack("", full, archived=False), f"stack {full} is there"
        stacks = list(self._conversation.board.stacks.values())
        if not number.isdecimal() or not 1 <= int(number) <= len(stacks):
            return None
        stack = stacks[int(number) - 1]
        used = stack.stack_id
        if word == "rename" and name:
            renamed = Stack(used, name, stack.archived)
            return RenameStack(name, used), renamed, f"stack {stack.name} is now called {name}"
        if word not in {"archive", "restore"} or name:
            return None
        changed = Stack(used, stack.name, archived=word == "archive")
        if changed.archived:
            return ArchiveStack(used), changed, f"stack {stack.name} is archived; /stacks restore {number} undoes it"
        return RestoreStack(used), changed, f"stack {stack.name} is back"

    async def _upload(self, rest: str) -> None:
        if not rest:
            await self._screen.show(drawing.problem("Which file?", "/upload PATH"))
            return
        # Paths dragged into a window often come in quotes.
        quoted = len(rest) > 1 and rest[0] == rest[-1] and rest[0] in "'\""
        path = Path(rest[1:-1] if quoted else rest)
        try:
            path = path.expanduser()
            size = path.stat().st_size
            reason = _unfit(path, size)
            arrived = await self._sent(path, size) if reason is None else None
        except (OSError, RuntimeError) as error:
            reason, arrived = str(getattr(error, "strerror", None) or error), None
        if reason is not None:
            await self._screen.show(drawing.problem(f"Not uploaded: {reason}.", one_line(path)))
        elif arrived is not None:
            words = f"✓ uploaded to {one_line(arrived)}: tell the agent what to do with it"
            await self._screen.line(drawing.note(words))

    async def _sent(self, path: Path, size: int) -> str | None:
        """Upload the file in chunks and return its path on the sprite, or None if that failed."""
        upload_id = str(uuid.uuid4())
        chunks = max(1, -(-size // UPLOAD_CHUNK_BYTES))
        path_there: str | None = None
        for index in range(chunks):
            data = await asyncio.to_thread(_chunk, path, index)
            part = FileUpload(upload_id, path.name, index, index == chunks - 1, base64.b64encode(data).decode())
            doing = f"uploading {one_line(path.name)}, {index * _PERCENT // chunks} %"
            answer = await self.ask(part, doing, _CHUNK_SECONDS)
            if not isinstance(answer, Ack):
                return None
            path_there = answer.path
        return path_there


def _unfit(path: Path, size: int) -> str | None:
    if not path.is_file():
        return "it is not a file"
    if size > MAX_UPLOAD_BYTES:
        return f"it has {size / _MB:.0f} MB, and {MAX_UPLOAD_BYTES // _MB} MB is the most"
    return None


def _chunk(path: Path, index: int) -> bytes:
    with path.open("rb") as file:
        file.seek(index * UPLOAD_CHUNK_BYTES)
        return file.read(UPLOAD_CHUNK_BYTES)


_LISTED = 40


class NotFetchedError(Exception):
    """A file could not be fetched; the message is for people."""


class FileCommands(CommandGroup):
    """The commands of one conversation."""

    @property
    def table(self) -> dict[str, Command]:
        """Return the commands by name."""
        return {
            "/files": Command("/files [FOLDER]", "your files on the sprite's computer, newest first", self._files),
            "/get": Command("/get PATH", "copies one of them into the folder you are in", self._get),
            "/rm": Command("/rm PATH", "deletes one of them, for good; asks first", self._rm),
        }

    async def _files(self, folder: str) -> None:
        found = await self.look(UserFilesRequest(folder.strip("/") or None), UserFilesResult)
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
        elif await self.look(DeleteUserFileRequest(path), DeleteUserFileResult) is not None:
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


class NotRestoredError(Exception):
    """The agent was not restored; the message is for people."""


class RestoreCommand(CommandGroup):
    """The commands of one conversation."""

    @property
    def table(self) -> dict[str, Command]:
        """Return the commands by name."""
        return {
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
