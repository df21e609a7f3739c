"""Invisible characters copied from web pages. Inside a key they would hide it from detection by shape."""

from __future__ import annotations

import re
from collections.abc import Callable

Span = tuple[int, int, str]

#: Soft hyphen, combining joiner, zero-width spaces and joiners, marks of direction, the byte order mark, selectors.
INVISIBLE = re.compile("[\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufe00-\ufe0f\ufeff]")


def seen_through(text: str, find: Callable[[str], list[Span]]) -> list[Span]:
    """Run `find` on the text without invisible characters; return its spans as positions in the original text."""
    places = [at for at, character in enumerate(text) if not INVISIBLE.match(character)]
    seen = "".join(text[at] for at in places)
    return [(places[start], places[end - 1] + 1, kind) for start, end, kind in find(seen) if end > start]
