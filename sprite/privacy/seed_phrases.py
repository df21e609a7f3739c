"""Wallet seed phrases (BIP 39): 12 to 24 words in a row, near a cue or alone on their line.

They are recognised without the list of 2,048 words: its words have three to eight letters, and it contains none of
the common function words.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

Span = tuple[int, int, str]

KIND = "seed-phrase"
_LENGTHS = frozenset({12, 15, 18, 21, 24})
_SHORTEST, _LONGEST = 12, 25
#: Cues for a phrase within _NEAR characters before it.
_CUE = re.compile(r"seed|mnemonic|(?:recovery|backup|secret|wallet)[ _-](?:phrase|words)|fromphrase|wallet")
_NEAR = 120
_MARKERS = ("seed", "mnemonic", "wallet", "phrase", "ckup words", "ret words")
_WORD = re.compile(r"[A-Za-z]+")
_IS_CANDIDATE = re.compile(r"[a-z]{3,8}")
#: Between two words: a space, commas and quotes of a list, the numbers of a numbered one.
_GAP = re.compile(r"""(?:[ \t]|["'`]?,?\s{1,3}["'`]?|["'`],["'`])?(?:\s{0,4}\d{1,2}[.):]?\s{1,3})?""")
#: Function words, none of them in the list.
_GLUE = frozenset(
    "the and for are was were with from his her has had been not but its our who which their than does did could would "
    "should into onto also isn don it's let's goes went them these those".split()
) - {"also", "into"}
#: A phrase alone on its line. The pattern starts with the line feed, so that the search skips other text fast.
_ALONE = r"""[ \t>"'`]{0,8}((?:[a-z]{3,8} ){11,23}[a-z]{3,8})[ \t\r"'`.]{0,4}(?=\n|\Z)"""
_LINE = re.compile(_ALONE)
_NEXT_LINE = re.compile(rf"\n{_ALONE}")
#: Endings that are rare in the list; more than a few mean a sentence or another list.
_INFLECTED = re.compile(r"(?:[^aeiou]s|ed|ing)\Z")
_MOST_INFLECTED = 2


def seed_phrases(text: str, lower: str) -> Iterator[Span]:
    """Yield the spans of phrases. `lower` is the text in lower case."""
    yield from _lines(text)
    if not any(marker in lower for marker in _MARKERS):
        return
    cues = [match.end() for match in _CUE.finditer(lower)]
    for run in _runs(text) if cues else ():
        words = [word[0] for word in run]
        start, end = run[0].start(), run[-1].end()
        if _could_be_phrase(words, exact=False) and any(start - _NEAR <= cue <= start for cue in cues):
            yield (start, end, KIND)


def _lines(text: str) -> Iterator[Span]:
    """Yield the lines that are exactly a phrase."""
    first = _LINE.match(text)
    for line in (first, *_NEXT_LINE.finditer(text)) if first else _NEXT_LINE.finditer(text):
        if _could_be_phrase(line[1].split(" "), exact=True):
            yield (*line.span(1), KIND)


def _runs(text: str) -> Iterator[list[re.Match[str]]]:
    """Yield every run of words that could be in the list, separated only as phrases are."""
    run: list[re.Match[str]] = []
    for word in _WORD.finditer(text):
        fits = _IS_CANDIDATE.fullmatch(word[0]) is not None and word[0] not in _GLUE
        if run and not (fits and _GAP.fullmatch(text, run[-1].end(), word.start())):
            yield run
            run = []
        if fits:
            run.append(word)
    if run:
        yield run


def _could_be_phrase(words: list[str], *, exact: bool) -> bool:
    """Return whether the words may be a phrase; `exact` allows only its regular lengths, because there is no cue."""
    if len(words) not in _LENGTHS and (exact or not _SHORTEST <= len(words) <= _LONGEST):
        return False
    inflected = sum(_INFLECTED.search(word) is not None for word in words)
    return not _GLUE.intersection(words) and inflected <= _MOST_INFLECTED and len(set(words)) > len(words) // 2
