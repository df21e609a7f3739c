"""Words in disguise (pure): how a line is read as an eye reads it, and which lines no honest hand writes.

Joined words (snake_case, CamelCase) are told apart and compared like any others. What is spaced out, written in letters
of other alphabets, in digits or with invisible signs is not undone but refused: a memory needs none of it, unless those
words stand so where they come from.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable

#: Names of code have up to three words or so; from here on, joined words are a sentence.
SENTENCE_PARTS = 4
#: So many words in digits are no accident; one is a name (k8s, b2b).
_LEET_WORDS = 2
#: So many single letters with spaces between them are a word.
_SPACED = re.compile(r"(?<!\w)(?:[^\W\d_][ \u00a0.\u00b7_*|/-]{1,3}){4,}[^\W\d_](?!\w)")
_LEET = re.compile(
    r"(?<![\w/.-])(?=\w*[a-z])(?:\w*?[a-z][013457@$]+[a-z]\w*|[013457][a-z]+[013457][a-z]\w*)(?![\w/.-])",
    re.IGNORECASE,
)
#: So much of a long word is named.
_SHOWN = 60
_WORD = re.compile(r"\w+")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
#: Letters that are drawn like others and are no other letter by any of Unicode's mappings.
_SMALL_CAPITALS = re.compile("[\u1d00-\u1d22\u0262\u026a\u0274\u0280\u029c\u029f\ua730\ua731\u1d1b\ua7af]")


def told_apart(text: str) -> str:
    """The text with joined words as words of their own."""
    return _CAMEL.sub(" ", text).replace("_", " ")


def disguise_of(line: str, is_known: Callable[[str], bool], *, personal: bool) -> str | None:
    """Why this line is written in disguise, in words, or None; what somebody honest spelled so `is_known` and is none.

    In a `personal` line no words are joined either: it has no names of code that are sentences.
    """
    joined = [word for word in _WORD.findall(line) if len(told_apart(word).split()) >= SENTENCE_PARTS]
    if personal and any(not is_known(word) for word in joined):
        return f"its words are joined: {joined[0][:_SHOWN]}"
    if (spaced := _SPACED.search(line)) is not None and not is_known(spaced[0]):
        return "its words are spaced out"
    leet = {found[0] for found in _LEET.finditer(line) if not is_known(found[0])}
    if len(leet) >= _LEET_WORDS:
        return f"digits stand for letters: {', '.join(sorted(leet))}"
    return None if line.isascii() else _foreign_letters(line, is_known)


def _foreign_letters(line: str, is_known: Callable[[str], bool]) -> str | None:
    if any(unicodedata.category(sign) == "Cf" and sign not in "\u200d\ufe0f" for sign in line):
        return "there are invisible signs in it"
    for word in _WORD.findall(line):
        if not word.isascii() and not is_known(word) and _is_masked(word):
            return f"letters of other alphabets stand for others: {word}"
    return None


def _is_masked(word: str) -> bool:
    """Whether letters in a word stand for others: two alphabets, or letters that are drawn as others."""
    if _SMALL_CAPITALS.search(word):
        return True
    letters = [sign for sign in word if sign.isalpha()]
    # Mathematical and full-width letters are others in another dress; an accent is none.
    if any(unicodedata.decomposition(sign).startswith(("<font>", "<wide>", "<circle>")) for sign in letters):
        return True
    alphabets = {unicodedata.name(sign, "").split(" ")[0] for sign in letters}
    return len(alphabets & {"LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE"}) > 1
