"""Find a quote in a text by its words, ignoring punctuation (pure).

A model that copies twenty words adds a full stop, drops a backtick or leaves out a word. The speaker stays the same. A
different number changes the meaning.

The time is linear in the length of the text, because word comparisons are bounded.
"""

from __future__ import annotations

import re
from array import array
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from sprite.memory.words import SPACELESS

#: One of this many words in a quote may be wrong; the others must be in the text in order. A word here is anything
#: between spaces, so a wrong path counts once.
ONE_WRONG_OF = 10
#: Limit of word comparisons for one quote in one text; a real quote needs a thousand.
MAX_COMPARISONS = 1_000_000
#: Words of a text that are searched for an inexact quote: a book. An answer has many quotes.
MAX_WORDS = 100_000
#: A word, or one character of a script without spaces.
_WORD = re.compile(rf"[{SPACELESS}]|[^\W{SPACELESS}]+")
_ELLIPSIS = re.compile(r"\[?(?:…|\.\.\.+)\]?")


@dataclass(frozen=True, slots=True)
class Quote:
    """A quote as words: all of them, and its parts, separated by ellipses.

    `group_of`: for each word, the index of its space-separated group.
    """

    words: Sequence[str]
    parts: Sequence[Sequence[str]]
    group_of: Sequence[int]

    @property
    def may_be_wrong(self) -> int:
        """Return the number of space-separated groups that may differ in the text."""
        return len(set(self.group_of)) // ONE_WRONG_OF

    @property
    def least(self) -> int:
        """Return the minimum number of its words that a text must contain."""
        sizes = Counter(self.group_of).most_common(self.may_be_wrong)
        return len(self.words) - sum(size for _, size in sizes)


def quote_of(text: str) -> Quote:
    """Split a quote into words."""
    groups = [words for group in text.split() if (words := _words(group))]
    parts = [words for part in _ELLIPSIS.split(text) if (words := _words(part))]
    numbers = [number for number, words in enumerate(groups) for _ in words]
    return Quote([word for words in groups for word in words], parts, numbers)


class Spoken:
    """A text to search for quotes, split once; a word is identified by its position."""

    def __init__(self, text: str) -> None:
        self.text = text

    # --- matching methods, strictest first: each yields positions of the quote's parts ---

    def as_it_is(self, quote: Quote) -> Iterator[list[range]]:
        """Yield the first place where all words of the quote are consecutive."""
        if (found := self._sequence(quote.words, 0)) is not None:
            yield [found]

    def in_parts(self, quote: Quote) -> Iterator[list[range]]:
        """Yield the place where the parts of the quote follow each other."""
        found: list[range] = []
        for part in quote.parts if len(quote.parts) > 1 else ():
            place = self._sequence(part, found[-1].stop if found else 0)
            if place is None:
                return
            found.append(place)
        if found:
            yield found

    def nearly(self, quote: Quote) -> Iterator[list[range]]:
        """Yield the passages with nearly all words of the quote in order."""
        wanted = quote.words
        numbers = {word for word in wanted if any(sign.isdigit() for sign in word)}
        width = len(wanted) + max(2, len(wanted) // 3)
        left = MAX_COMPARISONS
        for start in self._stretches(wanted, quote.least, width):
            stretch = self.words[start : start + width]
            left -= len(wanted) * width
            if left < 0:
                return
            pairs = _in_order(wanted, stretch)
            matched = {q for q, _ in pairs}
            wrong = {group for q, group in enumerate(quote.group_of) if q not in matched}
            if not pairs or len(wrong) > quote.may_be_wrong:
                continue
            found = range(start + pairs[0][1], start + pairs[-1][1] + 1)
            if numbers.issubset(self.words[found.start : found.stop]):
                yield [found]

    # --- results ---

    def wording(self, places: Sequence[range]) -> str:
        """Return the text at these places with its punctuation."""
        return " … ".join(self.text[self._spans[place.start][0] : self._spans[place.stop - 1][1]] for place in places)

    @cached_property
    def words(self) -> list[str]:
        """Return the casefolded words in order."""
        return _words(self.text)

    @cached_property
    def _spans(self) -> list[tuple[int, int]]:
        return [word.span() for word in _WORD.finditer(self.text)]

    @cached_property
    def _joined(self) -> str:
        return _joined(self.words)

    @cached_property
    def _in_joined(self) -> array[int]:
        """Return the position in `_joined` of the space before each word."""
        places, at = array("Q"), 0
        for word in self.words:
            places.append(at)
            at += len(word) + 1
        return places

    def _sequence(self, words: Sequence[str], after: int) -> range | None:
        if not words or after >= len(self.words):
            return None
        found = self._joined.find(_joined(words), self._in_joined[after])
        if found < 0:
            return None
        first = bisect_left(self._in_joined, found)
        return range(first, first + len(words))

    def _stretches(self, quote: Sequence[str], need: int, width: int) -> Iterator[int]:
        """Yield the starts of passages with enough of the quote's words, beginning with one of its first."""
        wanted = Counter(quote)
        first = frozenset(quote[: len(quote) - need + 1])
        here: Counter[str] = Counter()
        enough = end = 0
        for start, leaving in enumerate(self.words[:MAX_WORDS]):
            for entering in self.words[end : start + width]:
                here[entering] += 1
                enough += here[entering] <= wanted[entering]
            end = start + width
            if enough >= need and leaving in first:
                yield start
            enough -= here[leaving] <= wanted[leaving]
            here[leaving] -= 1


def _words(text: str) -> list[str]:
    return [word.casefold() for word in _WORD.findall(text)]


def _joined(words: Sequence[str]) -> str:
    return f" {' '.join(words)} "


def _in_order(quote: Sequence[str], stretch: Sequence[str]) -> list[tuple[int, int]]:
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
