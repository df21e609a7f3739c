"""The phrases that open a wallet (BIP 39): 12 to 24 words in a row, near a word that says so or alone on their line.

Known without the list of the 2,048 words: they have three to eight letters, and none is one of those that hold
sentences together.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

Span = tuple[int, int, str]

KIND = "seed-phrase"
_LENGTHS = frozenset({12, 15, 18, 21, 24})
_SHORTEST, _LONGEST = 12, 25
#: What announces a phrase, within so many characters before it.
_CUE = re.compile(r"seed|mnemonic|(?:recovery|backup|secret|wallet)[ _-](?:phrase|words)|fromphrase|wallet")
_NEAR = 120
_MARKERS = ("seed", "mnemonic", "wallet", "phrase", "ckup words", "ret words")
_WORD = re.compile(r"[A-Za-z]+")
_IS_CANDIDATE = re.compile(r"[a-z]{3,8}")
#: Between two words: a space, commas and quotes of a list, the numbers of a numbered one.
_GAP = re.compile(r"""(?:[ \t]|["'`]?,?\s{1,3}["'`]?|["'`],["'`])?(?:\s{0,4}\d{1,2}[.):]?\s{1,3})?""")
#: Words of sentences, none of them in the list.
_GLUE = frozenset(
    "the and for are was were with from his her has had been not but its our who which their than does did could would "
    "should into onto also isn don it's let's goes went them these those".split()
) - {"also", "into"}
#: A phrase alone on its line. The line feed first: so the search passes over everything else at once.
_ALONE = r"""[ \t>"'`]{0,8}((?:[a-z]{3,8} ){11,23}[a-z]{3,8})[ \t\r"'`.]{0,4}(?=\n|\Z)"""
_LINE = re.compile(_ALONE)
_NEXT_LINE = re.compile(rf"\n{_ALONE}")
#: Endings that hardly any of the list's words has; more than a few, and it is a sentence or a list of something else.
_INFLECTED = re.compile(r"(?:[^aeiou]s|ed|ing)\Z")
_MOST_INFLECTED = 2


def seed_phrases(text: str, lower: str) -> Iterator[Span]:
    """Yields the phrases. `lower` is the text in lower case."""
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
    """The lines that are a phrase and nothing else."""
    first = _LINE.match(text)
    for line in (first, *_NEXT_LINE.finditer(text)) if first else _NEXT_LINE.finditer(text):
        if _could_be_phrase(line[1].split(" "), exact=True):
            yield (*line.span(1), KIND)


def _runs(text: str) -> Iterator[list[re.Match[str]]]:
    """Every row of words that could be of the list, with nothing between them but what stands between words."""
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
    """Returns whether so many such words are a phrase; `exact`: in one of its lengths, as nothing else says so."""
    if len(words) not in _LENGTHS and (exact or not _SHORTEST <= len(words) <= _LONGEST):
        return False
    inflected = sum(_INFLECTED.search(word) is not None for word in words)
    return not _GLUE.intersection(words) and inflected <= _MOST_INFLECTED and len(set(words)) > len(words) // 2
