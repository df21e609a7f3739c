"""Sanitize untrusted text from agents, tools and other people for a terminal.

A control sequence in a file that the agent read must not move the cursor, change the title or hide a requested
command. Rich markup has no effect, because everything is drawn as `Text`.
"""

from __future__ import annotations

#: C0 except tab and newline, DEL, C1, lone surrogates, line separators and bidirectional controls.
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
    """Return the text without characters that control a terminal."""
    return str(text).translate(_FORBIDDEN)


def one_line(text: object) -> str:
    """Return the cleaned text with each run of white space replaced by one space."""
    return " ".join(clean(text).split())
