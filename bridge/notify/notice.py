"""Notifications for people without an open page, and the interface of the channels (pure)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

#: A background turn ended, a permission waits, a budget is nearly or fully spent, or the agent paused.
NoticeKind = Literal["ended", "permission", "budget", "paused"]

#: Title for people who did not turn on message texts in notifications.
SHORT_TITLE = "Sprite has something for you"


@dataclass(frozen=True, slots=True)
class Notice:
    """One notification. `key` deduplicates it; `at` is in Unix seconds.

    `title` and `body` are texts of the agent or the person; a channel omits them for people who chose short
    notifications. `request_id` identifies the question of a `permission`. `is_whole` means that `body` shows
    everything (seen_whole.py), so the question can be answered from the notification.
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
    """A channel to a person. Returns when the notice was accepted or given up; errors of a channel are not raised."""

    async def deliver(self, notice: Notice) -> None:
        """Deliver the notice, with the channel's own retries."""
