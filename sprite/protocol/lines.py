"""Foreign text among our lines (pure): no foreign line can pass for one of ours."""

from __future__ import annotations

INDENT = "  "


def set_in(text: str) -> str:
    """Return the text with all lines but the first indented, for every Unicode line separator.

    A line that begins with `- [L3 PREFERENCE` or `[turn 9` is ours only at the start of a line.
    """
    return f"\n{INDENT}".join(text.splitlines())


def on_one_line(text: str) -> str:
    """Return the text without line breaks, for a list with one entry per line."""
    return " ".join(text.split())


def one_line(value: object) -> str:
    """Return a path or other foreign value on one line, with unprintable characters replaced."""
    return "".join(sign if sign.isprintable() else "\N{REPLACEMENT CHARACTER}" for sign in str(value))
