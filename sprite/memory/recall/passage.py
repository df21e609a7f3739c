"""Find the part of a long text that answers a question (pure)."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from sprite.database.full_text import UNSPACED

#: About three sentences: enough to judge whether the rest is worth reading.
PASSAGE_WORDS = 60
CUT = "…"

_WORD = re.compile(rf"[{UNSPACED}]|[^\W{UNSPACED}]+")
_SIGN = re.compile(f"[{UNSPACED}]")
_ENDING = re.compile(r"(?<=...)(?:ings?|ied|ies|i?ly|ed|e?s|y|e)$")
_DOUBLED = re.compile(r"([bdfglmnprt])\1$")
#: Where a sentence or a line may begin.
_BEGINS = re.compile(r"(?<=[.!?])\s+|\n+|(?<=[\u3002\uff01\uff1f])")
#: Words by which a window may move back to the begin of a sentence.
BACK_WORDS = 15


@dataclass(frozen=True, slots=True)
class Passage:
    """A part of a text, from `start` to `end`."""

    start: int
    end: int


@lru_cache(maxsize=4096)
def stem(word: str) -> str:
    """Return a word without accents and ending, close to the index's own stemming."""
    plain = word.casefold()
    if not plain.isascii():
        plain = "".join(c for c in unicodedata.normalize("NFD", plain) if not unicodedata.combining(c))
    return _DOUBLED.sub(r"\1", _ENDING.sub("", plain))


def stems(phrases: Iterable[str]) -> list[str]:
    """Return the stems for FTS5 phrases: of a word, or of a character pair."""
    return [stem(phrase.strip('"').replace(" ", "")) for phrase in phrases]


def stems_in(text: str) -> set[str]:
    """Return the stems of all words and all pairs of adjacent characters."""
    found = list(_WORD.finditer(text))
    return {_key(found, place) for place in range(len(found))}


def best_passage(text: str, weights: Mapping[str, float], words: int = PASSAGE_WORDS) -> Passage:
    """Return the window of this many words with the most weight; each stem counts once."""
    found = list(_WORD.finditer(text))
    if len(found) <= words:
        return Passage(0, len(text))
    # The first letter excludes nearly every word without computing its stem.
    initials = {initial for key in weights for initial in (key[:1], key[:1].upper())}
    hits = [
        (place, key)
        for place, match in enumerate(found)
        if ((word := match[0])[0] in initials or not word.isascii()) and (key := _key(found, place)) in weights
    ]
    first, last = _best_run(hits, weights, words)
    # A third of the remaining room stands before the hits, because an answer follows.
    start = max(0, min(first - (words - 1 - last + first) // 3, len(found) - words))
    begin = _sentence_begin(text, found, start, first)
    end = min(len(found), max(start + words, last + 1)) - 1
    return Passage(begin, len(text) if end == len(found) - 1 else found[end].end())


def _key(found: Sequence[re.Match[str]], place: int) -> str:
    """Return the stem of a word, or a character of a script without spaces with the next one."""
    word, following = found[place][0], found[place + 1] if place + 1 < len(found) else None
    if following is not None and _SIGN.fullmatch(word) and following.start() == found[place].end():
        return word + following[0]
    return stem(word)


def _best_run(hits: Sequence[tuple[int, str]], weights: Mapping[str, float], words: int) -> tuple[int, int]:
    """Return the first and last hit of the best window, or the beginning without hits."""
    inside: dict[str, int] = {}
    worth = best = 0.0
    left = 0
    run = (0, 0)
    for place, key in hits:
        inside[key] = inside.get(key, 0) + 1
        worth += weights[key] if inside[key] == 1 else 0.0
        while hits[left][0] <= place - words:
            gone = hits[left][1]
            inside[gone] -= 1
            worth -= 0.0 if inside[gone] else weights[gone]
            left += 1
        if worth > best + 1e-9:
            best, run = worth, (hits[left][0], place)
    return run


def _sentence_begin(text: str, found: Sequence[re.Match[str]], start: int, first: int) -> int:
    """Return the begin of the window's sentence, or of the first sentence before the first hit."""
    if start == 0:
        return 0
    earliest = found[max(0, start - BACK_WORDS)].start()
    begins = [match.end() for match in _BEGINS.finditer(text, earliest, found[first].start())]
    near = [begin for begin in begins if begin <= found[start].start()]
    return near[-1] if near else begins[0] if begins else found[start].start()
