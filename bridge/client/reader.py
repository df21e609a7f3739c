"""What a client has not shown of a turn yet, in the order in which to show it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.client.turns import Call, Part, Text
from sprite.protocol.events import Compacted, Compacting, Ending

if TYPE_CHECKING:
    from bridge.client.turns import Turn


@dataclass(frozen=True, slots=True)
class Began:
    """The turn has begun, or has begun again: then what was shown of it is void."""

    is_again: bool


@dataclass(frozen=True, slots=True)
class Grew:
    """A text has grown by a piece, or is done. `begins`: nothing of it was shown before."""

    text: Text
    piece: str
    begins: bool


@dataclass(frozen=True, slots=True)
class Over:
    """A call that was shown is over."""

    call: Call


#: A part is never a text here.
News = Began | Grew | Over | Part | Compacting | Compacted | Ending


class Reader:
    """The position of one client in one turn."""

    def __init__(self) -> None:
        #: The last attempt that was shown, 0 before the turn's begin.
        self._attempt = 0
        #: The index of the next part, and the shown piece of it if it is a text.
        self._part = 0
        self._shown = ""
        #: Shown calls that were not over.
        self._calls: list[Call] = []
        self._is_compacting = self._has_ended = False

    def news(self, turn: Turn) -> list[News]:
        """Return what is new, once."""
        news: list[News] = []
        if turn.attempt > self._attempt:
            news.append(Began(is_again=self._attempt > 0))
            self._attempt, self._part, self._shown = turn.attempt, 0, ""
        for part in turn.parts[self._part :]:
            if isinstance(part, Text):
                piece = part.after(self._shown)
                if piece or part.is_done:
                    news.append(Grew(part, piece, begins=not self._shown))
                self._shown = "" if part.is_done else self._shown + piece
                if not part.is_done:
                    break
            else:
                news.append(part)
                if isinstance(part, Call):
                    self._calls.append(part)
            news += self._over()
            self._part += 1
        news += self._over()
        if turn.compacting != self._is_compacting and turn.ending is None:
            self._is_compacting = turn.compacting
            news.append(Compacting(turn.id) if turn.compacting else Compacted(turn.id))
        if turn.ending is not None and not self._has_ended:
            self._has_ended = True
            news.append(turn.ending)
        return news

    def skip(self, turn: Turn) -> None:
        """Take everything as shown, except a text that still grows."""
        self.news(turn)
        self._shown = ""

    def _over(self) -> list[News]:
        over = [call for call in self._calls if call.is_over]
        self._calls = [call for call in self._calls if not call.is_over]
        return [Over(call) for call in over]
