"""Messages that must arrive: kept until the sprite answers, and resent in order on a new connection (pure)."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Generic, TypeVar

_Sender = TypeVar("_Sender")

#: A person reaches this only by pasting; more is refused, because it is held in memory.
MAX_MESSAGES = 100
MAX_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class PendingMessage(Generic[_Sender]):
    """A frame for the sprite, its sender, the sender's id of it, and its arrival (Unix seconds)."""

    frame: bytes
    sender: _Sender
    message_id: str
    at: float = field(default_factory=time.time)


class ResendBuffer(Generic[_Sender]):
    """Messages by their id on the wire; a repeated id is the same message and keeps its place."""

    def __init__(self) -> None:
        self._messages: dict[str, PendingMessage[_Sender]] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def waiting_since(self) -> float | None:
        """Return the arrival of the oldest message in Unix seconds, None if there is none."""
        return next((message.at for message in self._messages.values()), None)

    def add(self, wire_id: str, message: PendingMessage[_Sender]) -> bool:
        """Keep a message; return False if there is no room."""
        before = self._messages.get(wire_id)
        size = self._bytes + len(message.frame) - (len(before.frame) if before else 0)
        if size > MAX_BYTES or (before is None and len(self._messages) >= MAX_MESSAGES):
            return False
        self._messages[wire_id] = message
        self._bytes = size
        return True

    def answered(self, wire_id: str) -> PendingMessage[_Sender] | None:
        """Remove an answered message and return it; None if it was not kept."""
        message = self._messages.pop(wire_id, None)
        if message is not None:
            self._bytes -= len(message.frame)
        return message

    def frames(self) -> list[bytes]:
        """Return all kept frames in their order of arrival."""
        return [message.frame for message in self._messages.values()]
