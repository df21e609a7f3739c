"""Characters that nobody sees, copied along from pages: inside a key they hide it from whoever looks for its shape."""

from __future__ import annotations

import re
from collections.abc import Callable

Span = tuple[int, int, str]

#: Soft hyphen, combining joiner, zero-width spaces and joiners, marks of direction, the byte order mark, selectors.
INVISIBLE = re.compile("[\u00ad\u034f\u061c\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufe00-\ufe0f\ufeff]")


def seen_through(text: str, find: Callable[[str], list[Span]]) -> list[Span]:
    """Returns what `find` finds in the text as it is seen, where it stands in the text as it is."""
    places = [at for at, character in enumerate(text) if not INVISIBLE.match(character)]
    seen = "".join(text[at] for at in places)
    return [(places[start], places[end - 1] + 1, kind) for start, end, kind in find(seen) if end > start]
