"""Texts of notices: a few words of the agent or the bridge on one line, sanitised, without the bridge's own keys."""

from __future__ import annotations

import re
from typing import Any

from sprite.common import own_secrets

_MAX_TITLE, _MAX_BODY = 100, 400
#: Markdown marks in the first line of a reply.
_MARKS = re.compile(r"^[#>*\-\s]+|[*_`]{1,3}")
#: Longest part of a text that is read.
_MAX_READ = 4000
_QUESTIONS = {
    "Bash": "May Sprite run a command?",
    "Write": "May Sprite write a file?",
    "Edit": "May Sprite change a file?",
    "NotebookEdit": "May Sprite change a file?",
    "WebFetch": "May Sprite open a page of the web?",
    "WebSearch": "May Sprite search the web?",
}
_TOLD_OF_INPUT = ("command", "file_path", "url", "query", "notebook_path")


def of_reply(text: str) -> tuple[str, str]:
    """Return title and body for a reply: its first line and the rest."""
    first, _, rest = text[:_MAX_READ].strip().partition("\n")
    title = line(_MARKS.sub("", first), _MAX_TITLE)
    return title or "Sprite did something by itself", line(rest)


def of_failure(message: str, *, by_schedule: bool) -> tuple[str, str]:
    """Return title and body for a turn that failed."""
    title = "A schedule could not be carried out" if by_schedule else "Something that Sprite had begun did not end well"
    return title, line(message)


def of_question(tool: str, tool_input: dict[str, Any]) -> tuple[str, str]:
    """Return title and body for a tool call that waits for the person's decision."""
    title = _QUESTIONS.get(tool) or f"May Sprite use {line(tool, 40) or 'a tool'}?"
    told = next((value for name in _TOLD_OF_INPUT if isinstance(value := tool_input.get(name), str)), "")
    return title, line(told)


def line(text: str, most: int = _MAX_BODY) -> str:
    """Return the text on one line, without control characters and keys, cut to `most` characters."""
    read = own_secrets.without(text[:_MAX_READ])
    words = " ".join("".join(c if c.isprintable() else " " for c in read).split())
    return words if len(words) <= most else words[: most - 1].rstrip() + "…"
