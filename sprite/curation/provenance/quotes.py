"""Find a quote in texts by its words, ignoring punctuation (pure).

A model that copies twenty words adds a full stop, drops a backtick or leaves out a word. The speaker stays the same. A
different number changes the meaning.

The time is linear in the length of the text, because word comparisons are bounded.
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from sprite.memory.words import SPACELESS

#: One of this many words in a quote may be wrong; the others must be in the text in order. A word here is anything
#: between spaces, so a wrong path counts once.
ONE_WRONG_OF = 10
#: Limit of word comparisons for one quote in one text; a real quote needs a thousand.
MAX_COMPARISONS = 1_000_000
#: Words of a text that are searched for an inexact quote: a book. An answer has many quotes.
MAX_WORDS = 100_000
#: A sentence is not quoted from text that writes it in so many times fewer words.
_IN_ONE_WORD = 2
#: A word, or one character of a script without spaces.
_WORD = re.compile(rf"[{SPACELESS}]|[^\W{SPACELESS}]+")
_ELLIPSIS = re.compile(r"\[?(?:…|\.\.\.+)\]?")


@dataclass(frozen=True)
class Spoken:
    """A text to search for quotes, or a quote; a word is identified by its position."""

    text: str

    @cached_property
    def joined(self) -> str:
        """Return the casefolded words in order, with a space before and after each."""
        return f" {' '.join(word.casefold() for word in _WORD.findall(self.text))} "

    # --- matching methods, strictest first: each yields positions of the quote's parts ---

    def as_it_is(self, quote: Spoken) -> Iterable[list[range]]:
        """Return the first place where all words of the quote are consecutive."""
        return self._in_order([quote.joined])

    def in_parts(self, quote: Spoken) -> Iterable[list[range]]:
        """Return the place where the parts of the quote, separated by ellipses, follow each other."""
        parts = [joined for part in _ELLIPSIS.split(quote.text) if (joined := Spoken(part).joined).strip()]
        return self._in_order(parts) if len(parts) > 1 else []

    def nearly(self, quote: Spoken) -> Iterator[list[range]]:
        """Yield the passages with nearly all words of the quote in order."""
        said, wanted = self.joined.split(), quote.joined.split()
        groups = [words for group in quote.text.split() if (words := Spoken(group).joined.split())]
        group_of = [number for number, words in enumerate(groups) for _ in words]
        may_be_wrong = len(groups) // ONE_WRONG_OF
        least = len(wanted) - sum(sorted(map(len, groups), reverse=True)[:may_be_wrong])
        numbers = {word for word in wanted if any(sign.isdigit() for sign in word)}
        width = len(wanted) + max(2, len(wanted) // 3)
        left = MAX_COMPARISONS
        for start in _stretches(said, wanted, least, width):
            stretch = said[start : start + width]
            left -= len(wanted) * width
            if left < 0:
                return
            pairs = _common(wanted, stretch)
            matched = {q for q, _ in pairs}
            wrong = {group for q, group in enumerate(group_of) if q not in matched}
            if not pairs or len(wrong) > may_be_wrong:
                continue
            found = range(start + pairs[0][1], start + pairs[-1][1] + 1)
            if numbers.issubset(said[found.start : found.stop]):
                yield [found]

    def _in_order(self, parts: Sequence[str]) -> list[list[range]]:
        """Return the first place where these words stand, each part in a row and one after another."""
        places: list[range] = []
        at = 0
        for part in parts:
            at = self.joined.find(part, at)
            if at < 0:
                return []
            first = self.joined.count(" ", 0, at)
            at += len(part) - 1
            places.append(range(first, first + part.count(" ") - 1))
        return [places]


_Spoken = TypeVar("_Spoken", bound=Spoken)


def find_quote(quote: str, texts: Sequence[_Spoken]) -> tuple[_Spoken, str] | None:
    """Return the text that says a quote by the strictest comparison in which any does, and its wording there."""
    # The curator is shown turns as XML, and may copy the escaped text.
    wordings = [each for text in dict.fromkeys((quote, html.unescape(quote))) if (each := Spoken(text)).joined.strip()]
    for matches in (Spoken.as_it_is, Spoken.in_parts, Spoken.nearly):
        for text in texts:
            for wording in wordings:
                for places in matches(text, wording):
                    spans = [word.span() for word in _WORD.finditer(text.text)]
                    found = " … ".join(text.text[spans[at.start][0] : spans[at.stop - 1][1]] for at in places)
                    # The words of an address or a path are no sentence.
                    if _IN_ONE_WORD * len(found.split()) >= len(quote.split()):
                        return text, found
    return None


def _stretches(said: Sequence[str], quote: Sequence[str], need: int, width: int) -> Iterator[int]:
    """Yield the starts of passages with enough of the quote's words, beginning with one of its first."""
    wanted = Counter(quote)
    first = frozenset(quote[: len(quote) - need + 1])
    here: Counter[str] = Counter()
    enough = end = 0
    for start, leaving in enumerate(said[:MAX_WORDS]):
        for entering in said[end : start + width]:
            here[entering] += 1
            enough += here[entering] <= wanted[entering]
        end = start + width
        if enough >= need and leaving in first:
            yield start
        enough -= here[leaving] <= wanted[leaving]
        here[leaving] -= 1


def _common(quote: Sequence[str], stretch: Sequence[str]) -> list[tuple[int, int]]:
    """Return the positions of a longest common subsequence of words."""
    # longest[q][s]: common words of the rest of the quote from q on and the rest of the passage from s on.
    longest = [[0] * (len(stretch) + 1) for _ in range(len(quote) + 1)]
    for q in range(len(quote) - 1, -1, -1):
        row, below = longest[q], longest[q + 1]
        for s in range(len(stretch) - 1, -1, -1):
            row[s] = below[s + 1] + 1 if quote[q] == stretch[s] else max(below[s], row[s + 1])
    places: list[tuple[int, int]] = []
    q = s = 0
    while q < len(quote) and s < len(stretch):
        if quote[q] == stretch[s]:
            places.append((q, s))
            q, s = q + 1, s + 1
        elif longest[q + 1][s] >= longest[q][s + 1]:
            q += 1
        else:
            s += 1
    return places
