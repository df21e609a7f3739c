"""The parts of a memory file (pure): the user's own part and a section per project.

A project's section begins with `## Project: KEY` and ends at the next heading of the same depth or above. KEY is the
project key verbatim. All other text is the user's own. A heading with an invalid key belongs to the user's part.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sprite.errors import PeerError
from sprite.protocol.observing import project_key

_MARK = "Project:"
#: A heading with fewer marks ends a section.
_DEPTH = 2
#: Lines around text that only the person changes.
PIN = "<!-- pin -->"
UNPIN = "<!-- /pin -->"


@dataclass(frozen=True, slots=True)
class Parts:
    """A memory file split at its headings: `sections` by key, in order, without surrounding empty lines."""

    own: str
    sections: dict[str, str]


def heading(project: str) -> str:
    """Return the heading of a project's section."""
    return f"## {_MARK} {project}"


def project_of(line: str) -> str | None:
    """Return the project key in a section's heading, or None for any other line."""
    if not line.startswith("## "):
        return None
    said = line[_DEPTH:].strip()
    if not said.startswith(_MARK):
        return None
    key = said.removeprefix(_MARK).strip()
    try:
        return key if project_key(key) == key else None
    except PeerError:
        return None


def split(content: str) -> Parts:
    """Split a memory file into sections. A file without sections is the user's own, byte for byte."""
    own: list[str] = []
    found: dict[str, list[str]] = {}
    here = own
    for line in content.split("\n"):
        if line.startswith(("# ", "## ")):
            key = project_of(line)
            if key is None:
                here = own
            elif key in found:
                here = found[key]
                continue
            else:
                here = found[key] = []
        here.append(line)
    if not found:
        return Parts(content, {})
    return Parts(joined(["\n".join(own)]), {key: "\n".join(lines).strip("\n") for key, lines in found.items()})


def shown(content: str, projects: Iterable[str], fits: Callable[[str], bool] = lambda _: True) -> str:
    """Return a session's view of a file: the user's part and these projects' sections, as far as they fit."""
    parts = split(content)
    view = content if not parts.sections else parts.own
    for key in dict.fromkeys(projects):
        section = parts.sections.get(key)
        if section is not None and fits(wider := joined([view, section])):
            view = wider
    return view


def merged(old: str, view: str, seen: Collection[str]) -> str:
    """Return the whole file after an edit of a view. `seen` are the projects whose sections the view has.

    Other sections keep their bytes; lines that the view adds to them are appended. Sections keep their order; empty
    ones are dropped.
    """
    before, now = split(old), split(view)
    if not before.sections and not now.sections:
        return view
    sections: dict[str, str] = {}
    for key in [*before.sections, *(key for key in now.sections if key not in before.sections)]:
        lines = [before.sections[key]] if key in before.sections and key not in seen else []
        if key in now.sections:
            lines.append("\n".join(now.sections[key].split("\n")[1:]) if lines else now.sections[key])
        text = "\n".join(part.strip("\n") for part in lines if part.strip())
        if any(line.strip() for line in text.split("\n")[1:]):
            sections[key] = text
    return joined([now.own, *sections.values()])


def views(content: str) -> list[str]:
    """Return all views of a memory file: the user's part alone and with each project's section."""
    parts = split(content)
    return [parts.own, *(joined([parts.own, section]) for section in parts.sections.values())]


def joined(texts: Iterable[str]) -> str:
    """Join parts into one file, separated by empty lines."""
    return "\n\n".join(stripped for text in texts if (stripped := text.strip("\n"))) + "\n"


#: A day is over when it is over everywhere on earth: a rebuild must not depend on its location.
_LAST_ZONE = timedelta(hours=12)
_SECTION = "## reminders"
_DAY = r"[0-9]{4}-[0-9]{2}-[0-9]{2}"
_DATED = re.compile(rf"\s{{0,8}}[-*] \**(?:on |by |before )?{_DAY}", re.IGNORECASE)
_DAYS = re.compile(rf"\b{_DAY}\b")


def without_past_reminders(content: str, at: float) -> tuple[str, list[str]]:
    """Return a file without reminders past at a time (Unix seconds), and those lines. Pinned lines stay."""
    today = (datetime.fromtimestamp(at, UTC) - _LAST_ZONE).strftime("%Y-%m-%d")
    kept: list[str] = []
    gone: list[str] = []
    is_reminder = is_pinned = False
    for line in content.split("\n"):
        if line.startswith("## "):
            is_reminder = line.strip().casefold() == _SECTION
        is_pinned = line.strip() != UNPIN and (is_pinned or line.strip() == PIN)
        if is_reminder and not is_pinned and _DATED.match(line) and max(_DAYS.findall(line)) < today:
            gone.append(line.strip())
        else:
            kept.append(line)
    return "\n".join(kept), gone
