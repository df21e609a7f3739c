"""Memory's own words where they come back (pure): what memory gave to a session proves nothing of what it learns there.

A session elsewhere is given memory by a text between two tags. It is not written into the log again: it would be found,
quoted and learned once more, for ever. (Of the tools by which memory is asked there, `protocol/tools.py` knows.)
"""

from __future__ import annotations

import html

_TAG = "sprite_memory"
_BEGIN = f"<{_TAG} "
_END = f"</{_TAG}>"
TAKEN_OUT = "[what memory gave to this session]"


def given(project: str | None, text: str) -> str:
    """A text as it is given to a session of a project, so that it is known again; it must not hold the closing tag."""
    key = "" if project is None else f'project="{html.escape(project)}" '
    return f"{_BEGIN}{key}>\n{text}\n{_END}\n"


def without_memory(text: str) -> str:
    """The text without what memory gave; what only begins so, and does not end, stays."""
    parts: list[str] = []
    at = 0
    while (start := text.find(_BEGIN, at)) >= 0 and (end := text.find(_END, start)) >= 0:
        parts += [text[at:start], TAKEN_OUT]
        at = end + len(_END)
    return "".join([*parts, text[at:]])
