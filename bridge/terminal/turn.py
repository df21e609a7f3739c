"""The agent's turns as shown: growing text, tool calls and endings."""

from weakref import WeakKeyDictionary, WeakSet

from rich.text import Text

from bridge.client.turns import Began, Call, Grew, News, Over, Reader, Turn
from bridge.terminal import drawing
from bridge.terminal.drawing import clean
from bridge.terminal.terminal import Screen
from sprite.protocol.events import Compacted, Compacting, Complete, Ending, Failed, Interrupted, ModelChanged
from sprite.protocol.shapes import UsedTool, counted

_FENCES = ("```", "~~~")


class StreamedReply:
    """`feed` pieces of a text, then `finish`; each returns the newly finished lines or blocks."""

    def __init__(self, *, by_line: bool = False) -> None:
        self._by_line = by_line
        #: The unfinished rest.
        self.tail = ""
        self._begin_scan()

    def feed(self, piece: str) -> list[str]:
        """Add the next piece."""
        self.tail += clean(piece)
        return self._cut()

    def finish(self) -> list[str]:
        """End the text and return its rest."""
        rest, self.tail = self.tail, ""
        self._begin_scan()
        return [rest.rstrip("\n") if self._by_line else rest.strip("\n")] if rest.strip() else []

    def _begin_scan(self) -> None:
        """Reset the scan. Pieces end outside of fences, so the next one starts without state."""
        self._scanned = 0
        self._fence = ""
        self._blank = False

    def _cut(self) -> list[str]:
        pieces: list[str] = []
        while True:
            cut = self.tail.find("\n") + 1 or None if self._by_line else self._next_block_end()
            if cut is None:
                return pieces
            piece, self.tail = self.tail[:cut], self.tail[cut:]
            self._begin_scan()
            if self._by_line:
                pieces.append(piece.removesuffix("\n"))
            elif piece.strip():
                pieces.append(piece.strip("\n"))

    def _next_block_end(self) -> int | None:
        """Return the end of a block: a line after a blank one, outside of a fence.

        An indented line continues the list item before the blank. Each line is scanned once.
        """
        while self._scanned < len(self.tail):
            start = self._scanned
            if self._blank and not self._fence and not self.tail[start].isspace():
                return start
            end = self.tail.find("\n", start)
            if end == -1:
                return None
            line = self.tail[start:end].strip()
            self._scanned = end + 1
            self._blank = not line
            if self._fence:
                if line.startswith(self._fence):
                    self._fence = ""
            elif line.startswith(_FENCES):
                self._fence = line[:3]
        return None


class ShownTurns:
    """Show each part of each turn once."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._reply = StreamedReply(by_line=screen.by_line)
        self._readers: WeakKeyDictionary[Turn, Reader] = WeakKeyDictionary()
        self._newest_call: Call | None = None
        #: Turns whose message was shown.
        self._said: WeakSet[Turn] = WeakSet()

    def skip(self, turn: Turn) -> None:
        """Treat everything in a turn so far as shown."""
        self._said.add(turn)
        self._readers.setdefault(turn, Reader()).skip(turn)

    async def show(self, turn: Turn) -> bool:
        """Show what is new of a turn; return whether it has ended."""
        if turn.text is not None and turn not in self._said and turn.origin != "schedule":
            # Sent from another page or terminal.
            self._said.add(turn)
            if turn.asked_by is not None:
                await self._screen.line(drawing.by_program(turn.asked_by, turn.text))
            else:
                await self._screen.show(drawing.said(turn.text))
        news = self._readers.setdefault(turn, Reader()).news(turn)
        used = [each for each in news if isinstance(each, UsedTool)]
        for each in news:
            if not isinstance(each, UsedTool):
                await self._show(turn, each)
            elif each is used[0]:
                await self._screen.line(drawing.used(used))
        return any(isinstance(each, Ending) for each in news)

    async def _show(self, turn: Turn, news: News) -> None:
        match news:
            case Began():
                await self._begin(turn, news)
            case Grew(text=text, piece=piece):
                pieces = self._reply.feed(piece) + (self._reply.finish() if text.is_done else [])
                await self._screen.reply(pieces, self._reply.tail)
            case Call(use=use):
                self._newest_call = news
                await self._screen.line(drawing.tool_started(use.name or "a tool", use.input))
            case Over(call=call):
                await self._call_over(turn, call)
            case Compacting():
                await self._screen.line(drawing.note("… summing up the older part of the conversation to make room"))
            case Compacted() | ModelChanged():
                made_room = "✓ made room: the older part of the conversation was summed up"
                await self._screen.line(drawing.note(f"⚠ {news.text}" if isinstance(news, ModelChanged) else made_room))
            case Interrupted():
                await self._screen.line(Text("■ stopped", style="yellow"))
            case Failed(message=message):
                await self._screen.show(drawing.problem(message or "The turn failed."))
        counts = news.changes if isinstance(news, Complete | Interrupted | Failed) else None
        if counts is not None and (number := counts.added + counts.modified + counts.deleted):
            words = f"{counted(number, 'file')} changed: /changes shows, /undo takes back"
            await self._screen.line(drawing.note(words))

    async def _begin(self, turn: Turn, began: Began) -> None:
        if began.is_again:
            # Finish the text of the void attempt.
            await self._screen.reply(self._reply.finish(), "")
            await self._screen.line(drawing.note(drawing.BEGUN_AGAIN))
        elif turn.origin == "schedule" and turn.text is not None:
            await self._screen.line(drawing.by_schedule(turn.text))
        elif not turn.is_own:
            await self._screen.line(drawing.began(turn.origin))

    async def _call_over(self, turn: Turn, call: Call) -> None:
        if call.result is None or (drawing.shows_itself(call.use.name) and not call.result.is_error):
            return
        # A result right below its call needs no name; one of several calls does.
        is_clear = call is self._newest_call and all(each.is_over for each in turn.calls)
        name = "" if is_clear else call.use.name
        await self._screen.line(drawing.tool_ended(name, call.result.summary, is_error=call.result.is_error))
