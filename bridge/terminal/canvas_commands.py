"""Commands for the canvas and files: cards, stacks and uploads."""

from __future__ import annotations

import asyncio
import base64
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.terminal import drawing
from bridge.terminal.cards import cards_in_words, draw_card, stacks_table
from bridge.terminal.command import LOOK_SECONDS, Command
from bridge.terminal.drawing import counted, one_line
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
from sprite.protocol.shapes import Stack

if TYPE_CHECKING:
    from bridge.terminal.command import Asking
    from bridge.terminal.conversation import Conversation
    from bridge.terminal.terminal import Screen
    from sprite.protocol.messages import AnyCanvasInteraction


_CHUNK_SECONDS = 60.0
#: A note without an answer by then is still sent once the sprite is connected.
_NOTE_SECONDS = 60.0
_PERCENT = 100
_MB = 1024 * 1024


class CanvasCommands:
    """The commands of one conversation; `table` maps names to commands."""

    def __init__(self, conversation: Conversation, screen: Screen, asking: Asking) -> None:
        self._conversation = conversation
        self._screen = screen
        self._asking = asking
        self.table = {
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
        if isinstance(await self._asking.ask(note, "writing the note", _NOTE_SECONDS), Ack):
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
        done = await self._asking.ask(interaction, "changing the canvas", LOOK_SECONDS)
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
            answer = await self._asking.ask(part, doing, _CHUNK_SECONDS)
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
