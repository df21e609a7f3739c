"""Notifications for people without an open page, and the interface of the channels (pure)."""

import re
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from sprite.common import own_secrets
from sprite.protocol.messages import PermissionRequest
from sprite.protocol.tools import NETWORK

#: A background turn ended, a permission waits, a budget is nearly or fully spent, the agent paused, a rule is offered.
NoticeKind = Literal["ended", "permission", "budget", "paused", "rule"]

#: Title for people who did not turn on message texts in notifications.
SHORT_TITLE = "Sprite has something for you"


@dataclass(frozen=True, slots=True)
class Notice:
    """One notification for a person. `key` deduplicates it; `at` is in Unix seconds.

    `title` and `body` are texts of the agent or the person; a channel omits them for people who chose short
    notifications. `request_id` identifies the question of a `permission`. `is_whole` means that `body` shows
    everything (is_seen_whole), so the question can be answered from the notification. With `raises`, going on needs a
    higher limit for today, which the person can set.
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
    raises: bool = False


class Channel(Protocol):
    """A way to deliver notices to a person."""

    async def deliver(self, notice: Notice) -> None:
        """Deliver the notice, with retries, until the receiver accepts it or it is given up. Log failures."""


_MAX_TITLE, _MAX_BODY = 100, 400
#: Markdown marks in the first line of a reply.
_MARKS = re.compile(r"^[#>*\-\s]+|[*_`]{1,3}")
#: Longest part of a text that is read.
_MAX_READ = 4000
_QUESTIONS = {
    "Bash": "May Sprite run a command?",
    "Write": "May Sprite write a file?",
    "Edit": "May Sprite edit a file?",
    "NotebookEdit": "May Sprite edit a notebook?",
    "WebFetch": "May Sprite read a web page?",
    "WebSearch": "May Sprite search the web?",
    NETWORK: "May Sprite reach a host?",
}
_TOLD_OF_INPUT = ("command", "file_path", "url", "query", "notebook_path", "host")


def of_reply(text: str) -> tuple[str, str]:
    """Return a notification's title and body for a reply: its first line and the rest."""
    first, _, rest = text[:_MAX_READ].strip().partition("\n")
    title = line(_MARKS.sub("", first), _MAX_TITLE)
    return title or "Sprite did something by itself", line(rest)


def of_failure(message: str, *, by_schedule: bool) -> tuple[str, str]:
    """Return a notification's title and body for a turn that failed."""
    title = "A scheduled message failed" if by_schedule else "Background work of Sprite failed"
    return title, line(message)


def of_question(tool: str, tool_input: dict[str, Any]) -> tuple[str, str]:
    """Return a notification's title and body for a tool call that waits for the person's decision."""
    name = tool.rpartition("__")[2].replace("_", " ")
    title = _QUESTIONS.get(tool) or f"May Sprite use {line(name, 40) or 'a tool'}?"
    told = next((value for name in _TOLD_OF_INPUT if isinstance(value := tool_input.get(name), str)), "")
    return title, line(told)


def line(text: str, most: int = _MAX_BODY) -> str:
    """Return the text on one line, without control characters and keys, cut to `most` characters."""
    read = own_secrets.without(text[:_MAX_READ])
    words = " ".join("".join(c if c.isprintable() else " " for c in read).split())
    return words if len(words) <= most else words[: most - 1].rstrip() + "…"


#: Some phones cut off longer texts.
_SEEN_CHARS = 160
#: Other members of a command's input that do not change its effect.
_HARMLESS = {"description", "timeout"}


def is_seen_whole(request: PermissionRequest, body: str) -> bool:
    """Return whether `body` shows all of the request, visibly: a host, or a short command in the workspace."""
    field = {"Bash": "command", NETWORK: "host"}.get(request.tool, "")
    return (
        request.folder is None
        and not request.redacted
        and set(request.input) - _HARMLESS == {field}
        and request.input[field] == body
        and 0 < len(body) <= _SEEN_CHARS
        # Characters that reorder the visible text are excluded, too, among them every kind of line end.
        and body.isprintable()
    )
