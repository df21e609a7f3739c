"""Assemble the turns of another program's conversation for the log (pure)."""

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
    """A turn assembled entry by entry; `line` is where it begins. Times are Unix seconds."""

    external_id: str
    line: int
    started_at: float
    ended_at: float
    project: str | None = None
    said: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    replies: list[str] = field(default_factory=list)
    tools: dict[str, ObservedTool] = field(default_factory=dict)
    #: The outcome as stated by the program, or None.
    outcome: Outcome | None = None
    #: Whether it is empty, or ends in a call without a result.
    waits: bool = True

    def touch(self, at: float | None) -> None:
        """Extend the turn to the time of an entry."""
        self.ended_at = max(self.ended_at, at or 0.0)

    def says(self, text: str) -> None:
        """Add text to the agent's reply."""
        if text.strip():
            self.replies.append(text)
            self.waits = False

    def calls(self, key: str, name: str, given: Any) -> None:
        """Add a tool call under memory's name for it; an existing call stays."""
        name, given = as_known(name, given)
        self.tools.setdefault(key, ObservedTool(name, key, given))
        self.waits = True

    def answers(self, key: str, result: Any, *, is_error: bool) -> None:
        """Add the result of a call; a result without a call is ignored."""
        if (call := self.tools.get(key)) is not None:
            call.result = "" if result is None else result
            call.is_error = call.is_error or is_error


class Conversation:
    """Convert the turns of one conversation, which share a session and private remarks."""

    def __init__(self, source: str, session: str, path: Path, now: float, tally: Tally) -> None:
        self._source = source
        self._session = session
        self._path = path
        self._now = now
        self._tally = tally
        self._confidences = Confidences()

    def finished(self, turn: Turn) -> ImportedTurn | None:
        """Return the turn in the log's form, or None with a note in the tally if it is invalid."""
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
