"""How texts of others are set where the agent reads them (pure): no line of theirs can pass for one of ours."""

from __future__ import annotations

import json
import re
from typing import Any

INDENT = "  "

#: A closing tag of ours as a model would still read it, whatever its spelling.
_CLOSING_TAG = re.compile(
    r"<(?=\s*/\s*(?:memory_file|skills|standing_preferences|open_actions|open_canvas|canvas_changes|files_changed"
    r"|recent_turns|project_memory|sprite_memory)\b)",
    re.IGNORECASE,
)
#: JSON writes these as they are, and Unicode ends a line with them.
_LINE_ENDS = str.maketrans({"\x85": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"})


def set_in(text: str) -> str:
    """The text with every line but the first set in, whatever sign of Unicode's ends its lines.

    A line that begins with `- [L3 PREFERENCE` or `[turn 9` is ours only where a line begins.
    """
    return f"\n{INDENT}".join(text.splitlines())


def on_one_line(text: str) -> str:
    """The text without line ends, for a list of which each line is an entry."""
    return " ".join(text.split())


def quoted(value: Any) -> str:
    """A JSON value on one line: whatever it says, it ends where its quotation marks do."""
    return json.dumps(value, ensure_ascii=False).translate(_LINE_ENDS)


def part(tag: str, content: str) -> str:
    """Content between a part's tags, as data."""
    return f"<{tag}>\n{sealed(content)}\n</{tag}>"


def sealed(content: str) -> str:
    """Content that cannot close a part: what would be taken for a closing tag is defused."""
    return _CLOSING_TAG.sub(r"<\\", content)
