"""Frame untrusted text (pure), so that no line of it can pass for one of our own."""

from __future__ import annotations

import json
import re
from typing import Any


def set_in(text: str) -> str:
    """Return the text with all lines but the first indented, for every Unicode line separator.

    A line that begins with `- [L3 PREFERENCE` or `[turn 9` is ours only at the start of a line.
    """
    return "\n  ".join(text.splitlines())


def on_one_line(text: str) -> str:
    """Return the text without line breaks, for a list with one entry per line."""
    return " ".join(text.split())


def one_line(value: object) -> str:
    """Return a path or other foreign value on one line, with unprintable characters replaced."""
    return "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in str(value))


#: One of our closing tags in any spelling that a model would accept.
_CLOSING_TAG = re.compile(
    r"<(?=\s*/\s*(?:memory_file|standing_preferences|open_actions|open_canvas|canvas_changes|files_changed"
    r"|recent_turns|project_memory|sprite_memory)\b)",
    re.IGNORECASE,
)
#: JSON keeps these characters, but Unicode ends a line with them.
_LINE_ENDS = str.maketrans({"\x85": "\\u0085", "\u2028": "\\u2028", "\u2029": "\\u2029"})


def quoted(value: Any) -> str:
    """Return a value as JSON on one line, delimited by its quotation marks."""
    return json.dumps(value, ensure_ascii=False).translate(_LINE_ENDS)


def part(tag: str, content: str, attributes: str = "") -> str:
    """Return untrusted content between an opening and a closing tag of this name; `attributes` begin with a space."""
    return f"<{tag}{attributes}>\n{sealed(content)}\n</{tag}>"


def sealed(content: str) -> str:
    """Return untrusted content changed so that it cannot contain a working closing tag of the prompt."""
    return _CLOSING_TAG.sub(r"<\\", content)
