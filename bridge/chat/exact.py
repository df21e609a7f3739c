"""What a person is asked about, drawn so that every character of it is seen.

Elsewhere what a terminal would obey is left out; here a mark stands in its place, since it would run.
"""

from __future__ import annotations

import unicodedata

from rich.text import Text

_MARK = "reverse yellow"
#: Without a style of their own, which a text of very many lines would take very long to draw.
_ENDS = {"\n": "\N{RETURN SYMBOL}\n", "\t": "\N{RIGHTWARDS ARROW TO BAR}\t"}
#: Controls, marks of direction and joining, halves of pairs, private and unknown characters, separators of lines.
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
#: Letters and signs of other categories that leave no ink, or choose how the one before is drawn.
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
    """Draws a text with its line ends, and with `<U+202E>` where a character would not be seen as what it is."""
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
