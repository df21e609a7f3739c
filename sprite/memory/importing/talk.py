"""One turn of another program's conversation in the making, and how it is handed on (pure)."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sprite.database.transcript import ImportedTurn, Outcome
from sprite.errors import PeerError
from sprite.memory.capture.observed_turns import logged
from sprite.memory.importing.reader import Tally
from sprite.memory.importing.tools import as_known
from sprite.privacy.confidences import Confidences
from sprite.protocol.observing import ObservedTool, ObservedTurn


@dataclass(slots=True)
class Turn:
    """A turn as it is read, of one entry after another; `line` is where it begins. Times are Unix seconds."""

    external_id: str
    line: int
    started_at: float
    ended_at: float
    project: str | None = None
    said: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    replies: list[str] = field(default_factory=list)
    tools: dict[str, ObservedTool] = field(default_factory=dict)
    #: How it ended, as its program says; None while it says nothing.
    outcome: Outcome | None = None
    #: Whether the last thing in it is a call that waits for its result, or nothing at all.
    waits: bool = True

    def touch(self, at: float | None) -> None:
        """Notes that something of it was written at a time."""
        self.ended_at = max(self.ended_at, at or 0.0)

    def says(self, text: str) -> None:
        """Adds to the agent's reply."""
        if text.strip():
            self.replies.append(text)
            self.waits = False

    def calls(self, key: str, name: str, given: Any) -> None:
        """Adds a tool call, under the name that memory knows it by; one that is there already stays."""
        name, given = as_known(name, given)
        self.tools.setdefault(key, ObservedTool(name, key, given))
        self.waits = True

    def answers(self, key: str, result: Any, *, is_error: bool) -> None:
        """Adds what a call came to; what answers no call is nobody's."""
        if (call := self.tools.get(key)) is not None:
            call.result = "" if result is None else result
            call.is_error = call.is_error or is_error


class Conversation:
    """What the turns of one conversation have in common: whose they are, and what was said in private in them."""

    def __init__(self, source: str, session: str, path: Path, now: float, tally: Tally) -> None:
        self._source = source
        self._session = session
        self._path = path
        self._now = now
        self._tally = tally
        self._confidences = Confidences()

    def finished(self, turn: Turn) -> ImportedTurn | None:
        """Returns the turn as the log takes it, or None, told to the tally, where it cannot be taken."""
        outcome = turn.outcome or ("crashed" if turn.waits else "complete")
        observed = ObservedTurn(
            external_id=turn.external_id,
            session=self._session,
            at=turn.ended_at,
            user="\n\n".join(text for text in turn.said if text.strip()),
            tools=list(turn.tools.values()),
            reply="\n\n".join(turn.replies),
            outcome=outcome,
            notice="\n".join(turn.notices),
            started_at=turn.started_at,
        )
        try:
            return logged(self._source, turn.project, observed, self._confidences, self._now)
        except PeerError as error:
            self._tally.damage(self._path, turn.line, str(error))
            return None
