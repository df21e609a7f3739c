"""What agents, tools and other people wrote, made safe for a terminal.

A control sequence in a file the agent read must not move the cursor, retitle the window or hide a command
from the person who is asked to allow it. Rich markup never enters: everything is drawn as `Text`.
"""

from __future__ import annotations

#: C0 (but tab and newline), DEL, C1, lone surrogates, and the marks that turn the direction of writing.
_FORBIDDEN = dict.fromkeys(
    [
        *(code for code in range(0x20) if chr(code) not in "\t\n"),
        *range(0x7F, 0xA0),
        *range(0xD800, 0xE000),
        0x061C,
        *range(0x200E, 0x2010),
        *range(0x2028, 0x202F),
        *range(0x2066, 0x206A),
    ]
)


def clean(text: object) -> str:
    """Returns the text without anything a terminal would obey."""
    return str(text).translate(_FORBIDDEN)


def one_line(text: object) -> str:
    """Returns the cleaned text with every run of white space as one space."""
    return " ".join(clean(text).split())
