"""What a person is told when they have no page open, and whoever can tell it (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

#: Something by itself ended, a permission waits, a budget is nearly or all spent, or the agent waits for a word.
NoticeKind = Literal["ended", "permission", "budget", "paused"]

#: What a person hears who wants no words, or until they said that they do.
SHORT_TITLE = "Sprite has something for you"


@dataclass(frozen=True, slots=True)
class Notice:
    """One notification. `key` tells it from others and makes a resend known; `at` is in Unix seconds.

    `title` and `body` are words of the agent's or the person's: a channel leaves them out where the person wants
    only to hear that there is something. `request_id` is the question of a `permission`; `is_whole` says that `body`
    is all there is to see of it (seen_whole.py), so that it can be allowed where nothing else is shown.
    """

    key: str
    kind: NoticeKind
    person: str
    sprite: str
    title: str
    body: str
    at: float
    request_id: str | None = None
    is_whole: bool = False


class Channel(Protocol):
    """A way to a person. Returns when the notice was taken over or given up; never raises for a fault of its own."""

    async def deliver(self, notice: Notice) -> None:
        """Brings the notice to the person, as often tried and as long as the channel thinks right."""
        ...
