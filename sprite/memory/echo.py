"""Memory's own words where they come back (pure): what memory gave to a session proves nothing of what it learns there.

A session elsewhere is given memory by a text between two tags, and by the tools of our MCP server. Neither is written
into the log again: it would be found, quoted and learned once more, for ever.
"""

from __future__ import annotations

import html
import re

from sprite.protocol.tools import OWN_TOOLS

_TAG = "sprite_memory"
_BEGIN = f"<{_TAG} "
_END = f"</{_TAG}>"
TAKEN_OUT = "[what memory gave to this session]"
#: What our MCP server is called elsewhere is for its user to say; these are its tools, and it is known by its name.
_MEMORY_TOOL = re.compile(
    r"\Amcp__[\w.-]{0,100}sprite[\w.-]{0,100}__(?:search_memory|around|read_memory|list_actions)\Z", re.IGNORECASE
)


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


def is_memory_tool(name: str) -> bool:
    """Whether a tool, by its name in a session elsewhere, shows what memory has. The agent's own are not among them."""
    return not name.startswith(OWN_TOOLS) and _MEMORY_TOOL.match(name) is not None
