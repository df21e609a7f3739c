"""What a person wrote and the sprite has not answered yet: kept, in order, until it does (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

_Asker = TypeVar("_Asker")

#: A person writes that much only with something pasted; more is refused, so that nobody fills the memory unseen.
MAX_MESSAGES = 100
MAX_BYTES = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Kept(Generic[_Asker]):
    """A frame as it goes to the sprite, who sent it, and by which id they know it."""

    frame: bytes
    asker: _Asker
    asked_as: str


class KeptMessages(Generic[_Asker]):
    """By the id on the wire; the same id again is the same message, which keeps its place."""

    def __init__(self) -> None:
        self._kept: dict[str, Kept[_Asker]] = {}
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._kept)

    def add(self, wire_id: str, kept: Kept[_Asker]) -> bool:
        """Keeps it; False if there is no room."""
        before = self._kept.get(wire_id)
        size = self._bytes + len(kept.frame) - (len(before.frame) if before else 0)
        if size > MAX_BYTES or (before is None and len(self._kept) >= MAX_MESSAGES):
            return False
        self._kept[wire_id] = kept
        self._bytes = size
        return True

    def answered(self, wire_id: str) -> Kept[_Asker] | None:
        """It need not be kept any longer; None if it was not."""
        kept = self._kept.pop(wire_id, None)
        if kept is not None:
            self._bytes -= len(kept.frame)
        return kept

    def frames(self) -> list[bytes]:
        """Everything that is kept, in the order in which it was written."""
        return [kept.frame for kept in self._kept.values()]
