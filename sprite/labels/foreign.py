"""Find the words of a tool call's input that come from untrusted content (pure).

A word is foreign if untrusted content has it, unless the person said it, or trusted content had it first. Addresses,
long numbers and encoded text that nobody said are foreign, too: untrusted content may have disguised them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from typing import Any

from sprite.memory.words import forms_of
from sprite.protocol.messages import ForeignSpan
from sprite.protocol.tools import leaves_of

#: The source of words that nobody said.
UNKNOWN = "unknown"
#: Words that are kept. With more of them, every word that nobody trusted said is foreign.
MAX_WORDS = 200_000
#: A question with more spans marks the rest as one.
MAX_SPANS = 200
#: The texts of a longer input are marked as a whole.
MAX_CHARS = 20_000
_WORD = re.compile(r"\w+")
#: E-mail addresses, URLs, numbers as long as an account's, and text as long as an encoded one.
_TELLING = re.compile(
    r"[\w.+-]{1,64}@[\w-]{1,64}\.[\w.-]+|(?:\bhttps?://|\bwww\.)[^\s<>\"')\]]+|\+?\d(?: ?\d){6,}|[\w+/=-]{16,}"
)
#: Signs between two words of one span.
_MOST_BETWEEN = 5
#: Start, end and source of foreign words in a text.
_Mark = tuple[int, int, str]


class ForeignWords:
    """The words of one session, each with whether the person, trusted or untrusted content had it first."""

    def __init__(self) -> None:
        self._persons: set[str] = set()
        self._trusted: set[str] = set()
        self._sources: dict[str, str] = {}
        self._is_partial = False

    def add_persons(self, forms: Collection[str]) -> None:
        """Add the person's own words."""
        self._persons.update(forms)

    def add_trusted(self, forms: Iterable[str]) -> None:
        """Add words of the agent before it read untrusted content, or of a trusted result."""
        self._trusted.update(form for form in forms if form not in self._sources)

    def add(self, forms: Iterable[str], source: str, *, is_cut: bool = False) -> None:
        """Add words of untrusted content. `is_cut`: the content has more words, which are unknown here."""
        for form in forms:
            if form not in self._trusted:
                self._sources.setdefault(form, source)
        self._is_partial |= is_cut or len(self._sources) > MAX_WORDS

    def spans(self, given: Mapping[str, Any]) -> list[ForeignSpan]:
        """Return the foreign words of a tool call's input, in order.

        Foreign words that the person said, too, are returned only if there are no others.
        """
        leaves = list(leaves_of(given))
        is_long = sum(len(text) for _, text in leaves) > MAX_CHARS
        for exempt in (self._persons, frozenset[str]()):
            found = [
                ForeignSpan(path, *span)
                for path, text in leaves
                for span in _joined(text, self._whole(text, exempt) if is_long else self._marks(text, exempt))
            ]
            if found:
                break
        if len(found) > MAX_SPANS:
            texts = dict(leaves)
            rest = dict.fromkeys(span.field for span in found[MAX_SPANS:])
            found = found[:MAX_SPANS] + [ForeignSpan(path, 0, len(texts[path]), UNKNOWN) for path in rest]
        return found

    def _whole(self, text: str, exempt: AbstractSet[str]) -> Iterator[_Mark]:
        found = sorted(form for form in forms_of(text) - exempt if form in self._sources)
        if found or self._is_partial:
            yield 0, len(text), self._sources[found[0]] if found else UNKNOWN

    def _marks(self, text: str, exempt: AbstractSet[str]) -> Iterator[_Mark]:
        for found in _WORD.finditer(text):
            forms = forms_of(found[0]) - exempt
            source = next((self._sources[form] for form in sorted(forms) if form in self._sources), None)
            if source is None and self._is_partial and forms - self._trusted - self._persons:
                source = UNKNOWN
            if source is not None:
                yield found.start(), found.end(), source
        for found in _TELLING.finditer(text):
            is_telling = any(map(str.isdigit, found[0])) or not found[0].isalpha()
            if is_telling and forms_of(found[0]) - self._persons - self._trusted - self._sources.keys():
                yield found.start(), found.end(), UNKNOWN


def _joined(text: str, marks: Iterable[_Mark]) -> list[_Mark]:
    """Merge marked spans of a text that are separated only by a few characters without words."""
    joined: list[_Mark] = []
    for first, last, source in sorted(marks):
        if joined:
            start, end, known = joined[-1]
            if first <= end + _MOST_BETWEEN and not forms_of(text[end:first]):
                joined[-1] = start, max(end, last), source if known == UNKNOWN else known
                continue
        joined.append((first, last, source))
    return joined
