"""Texts of others among lines of ours (pure): no line of theirs can pass for one of ours."""

from __future__ import annotations

INDENT = "  "


def set_in(text: str) -> str:
    """The text with every line but the first set in, whatever sign of Unicode's ends its lines.

    A line that begins with `- [L3 PREFERENCE` or `[turn 9` is ours only where a line begins.
    """
    return f"\n{INDENT}".join(text.splitlines())


def on_one_line(text: str) -> str:
    """The text without line ends, for a list of which each line is an entry."""
    return " ".join(text.split())
