"""Detection of memory's own text in later input (pure). Such text is no evidence for a learning.

Memory is given to a session elsewhere between two tags. The log leaves this text out. Otherwise search would find it,
and curation would learn it again and again. `protocol/tools.py` lists the tools that query memory there.
"""

from __future__ import annotations

import html

_TAG = "sprite_memory"
_BEGIN = f"<{_TAG} "
_END = f"</{_TAG}>"
TAKEN_OUT = "[what memory gave to this session]"


def given(project: str | None, text: str) -> str:
    """Return a text wrapped for a session of a project. The text must not contain the closing tag."""
    key = "" if project is None else f'project="{html.escape(project)}" '
    return f"{_BEGIN}{key}>\n{text}\n{_END}\n"


def without_memory(text: str) -> str:
    """Return the text without the wrapped parts. An opening tag without a closing one stays."""
    parts: list[str] = []
    at = 0
    while (start := text.find(_BEGIN, at)) >= 0 and (end := text.find(_END, start)) >= 0:
        parts += [text[at:start], TAKEN_OUT]
        at = end + len(_END)
    return "".join([*parts, text[at:]])
