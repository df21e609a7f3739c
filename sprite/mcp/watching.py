"""Follow one mission for its caller: feed the sprite's messages, get progress texts and finally the end.

Pure: the caller owns the connection to the sprite, and uses the texts.
"""

from __future__ import annotations

from sprite.mcp.tools import MissionEnd, Outcome
from sprite.protocol.events import Compacting, Complete, Failed, Interrupted, Started, ToolUse, WholeText
from sprite.protocol.framing import on_one_line
from sprite.protocol.messages import CanvasUpdate, PermissionRequest
from sprite.protocol.shapes import Card, Payload

_PROGRESS_CHARS = 300
#: Limit for the newest cards of a mission.
_MAX_DRAWN = 50
#: The input that distinguishes calls of the same tool.
_TELLING = ("command", "file_path", "path", "pattern", "query", "url", "title", "description")


class MissionWatch:
    """Track a mission. Pass every message of the sprite to `hear` in order; `end` is set once it has ended."""

    def __init__(self, mission_id: str) -> None:
        self._id = mission_id
        self._runs = False
        self._drawn: dict[str, Card] = {}
        #: The end of the mission; None until then.
        self.end: MissionEnd | None = None

    def hear(self, payload: Payload) -> str | None:
        """Return progress text if this message concerns the mission, else None."""
        if isinstance(payload, CanvasUpdate):
            self._draw(payload)
        elif getattr(payload, "mission_id", None) == self._id:
            self._runs = True
            self._note_end(payload)
            return _progress(payload)
        return None

    def _note_end(self, payload: Payload) -> None:
        match payload:
            case Complete(text=text):
                self._over("complete", text)
            case Interrupted():
                self._over("interrupted", "")
            case Failed(message=message):
                self._over("error", message)

    def _over(self, outcome: Outcome, text: str) -> None:
        self._runs = False
        if self.end is None:
            self.end = MissionEnd(outcome, text, self._id, list(self._drawn.values()))

    def _draw(self, update: CanvasUpdate) -> None:
        if not self._runs:
            return
        self._drawn.pop(update.card_id, None)
        if update.command == "close_card":
            return
        self._drawn[update.card_id] = Card(
            card_id=update.card_id,
            stack_id=update.stack_id,
            title=update.title,
            card_type=update.card_type,
            position=update.position,
            size=update.size,
            blocks=update.blocks,
            archived=False,
        )
        if len(self._drawn) > _MAX_DRAWN:
            del self._drawn[next(iter(self._drawn))]


def _progress(payload: Payload) -> str | None:
    match payload:
        case Started(attempt=attempt):
            return "The agent has begun." if attempt == 1 else "The agent has begun again."
        case WholeText(text=text):
            return _short(text)
        case ToolUse(name=name, input=given):
            telling = next((str(given[key]) for key in _TELLING if isinstance(given.get(key), str)), "")
            return _short(f"{name} {telling}".strip())
        case PermissionRequest(tool=tool):
            return f"The agent waits for the person's permission to use {_short(tool)}."
        case Compacting():
            return "The conversation is being summed up."
        case _:
            return None


def _short(text: str) -> str:
    line = on_one_line(text[: _PROGRESS_CHARS * 4])
    return line if len(line) <= _PROGRESS_CHARS else f"{line[:_PROGRESS_CHARS]}…"
