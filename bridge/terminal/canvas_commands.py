"""Commands for the canvas and files: cards and uploads."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bridge.terminal import drawing
from bridge.terminal.cards import draw_card
from bridge.terminal.command import Command, CommandGroup
from bridge.terminal.drawing import one_line
from sprite.protocol.messages import MAX_UPLOAD_BYTES, Ack, upload_chunks

_CHUNK_SECONDS = 60.0
_MB = 1024 * 1024


class CanvasCommands(CommandGroup):
    """The commands of one conversation."""

    @property
    def table(self) -> dict[str, Command]:
        """Return the commands by name."""
        return {
            "/cards": Command("/cards", "the cards on the canvas", self._cards),
            "/upload": Command("/upload PATH", "hands a file to the agent, into its documents", self._upload),
        }

    async def _cards(self, _rest: str) -> None:
        for card in self._conversation.cards.values():
            await self._screen.show(draw_card(card.title, card.blocks))
        if not self._conversation.cards:
            await self._screen.line(drawing.note("no cards yet: ask the agent for one"))

    async def _upload(self, rest: str) -> None:
        if not rest:
            await self._screen.show(drawing.problem("Which file?", "/upload PATH"))
            return
        # Paths dragged into a window often come in quotes.
        quoted = len(rest) > 1 and rest[0] == rest[-1] and rest[0] in "'\""
        path = Path(rest[1:-1] if quoted else rest)
        try:
            path = path.expanduser()
            reason = _unfit(path, path.stat().st_size)
            arrived = await self._sent(path) if reason is None else None
        except (OSError, RuntimeError) as error:
            reason, arrived = str(getattr(error, "strerror", None) or error), None
        if reason is not None:
            await self._screen.show(drawing.problem(f"Not uploaded: {reason}.", one_line(path)))
        elif arrived is not None:
            words = f"✓ uploaded to {one_line(arrived)}: tell the agent what to do with it"
            await self._screen.line(drawing.note(words))

    async def _sent(self, path: Path) -> str | None:
        """Upload the file in chunks and return its path on the sprite, or None if that failed."""
        path_there: str | None = None
        for part in upload_chunks(path.name, await asyncio.to_thread(path.read_bytes)):
            answer = await self.ask(part, f"uploading {one_line(path.name)}, part {part.index + 1}", _CHUNK_SECONDS)
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
