"""Text of permission requests, drawn with every character visible.

Elsewhere control characters are removed. Here a mark replaces them, because they would be executed.
"""

from __future__ import annotations

import unicodedata

from rich.text import Text

_MARK = "reverse yellow"
#: Unstyled, because styles make texts with many lines very slow to draw.
_ENDS = {"\n": "\N{RETURN SYMBOL}\n", "\t": "\N{RIGHTWARDS ARROW TO BAR}\t"}
#: Control, format, surrogate, private-use and unassigned characters, and line separators.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
#: Invisible characters of other categories, and variation selectors.
_BLANK = frozenset(
    map(
        chr,
        (
            *(0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2800, 0x3164, 0xFFA0),
            *range(0x180B, 0x1810),
            *range(0xFE00, 0xFE10),
            *range(0xE0100, 0xE01F0),
        ),
    )
)


def exact(text: str, style: str = "") -> Text:
    """Draw a text with visible line ends, and with marks such as `<U+202E>` for invisible characters."""
    drawn = Text(overflow="fold", style=style)
    seen: list[str] = []
    for letter in text:
        if letter == " " or not _is_unseen(letter):
            seen.append(letter)
            continue
        if letter in _ENDS:
            seen.append(_ENDS[letter])
            continue
        drawn.append("".join(seen)).append(f"<U+{ord(letter):04X}>", style=_MARK)
        seen.clear()
    return drawn.append("".join(seen))


def _is_unseen(letter: str) -> bool:
    category = unicodedata.category(letter)
    return category in _UNSEEN or category == "Zs" or letter in _BLANK
