"""Find words of a vocabulary that are spelled almost like an unknown word (pure)."""

from __future__ import annotations

from collections.abc import Iterable

#: Shorter words are close to too many others; words of the second length may have two mistakes.
LEAST_LETTERS = 4
TWO_MISTAKES = 8
MOST_NEAR = 2


def may_be_misspelled(word: str) -> bool:
    """Return whether a misspelling of the word can be recognised."""
    return len(word) >= LEAST_LETTERS and word.isascii() and word.isalpha()


def near_spellings(word: str, wanted: str, vocabulary: Iterable[tuple[str, int]]) -> list[str]:
    """Return the nearest stems of the vocabulary, then the most frequent; it has (stem, text count) pairs.

    `wanted` is the word's own stem by the same rules, so the distance between stems is that of the mistake.
    """
    most = 2 if len(word) >= TWO_MISTAKES else 1
    letters = set(wanted)
    near = [
        (mistakes, -count, term)
        for term, count in vocabulary
        # Exclude most terms without a letter by letter comparison.
        if abs(len(term) - len(wanted)) <= most
        and len(letters ^ set(term)) <= 2 * most
        and (mistakes := distance(wanted, term)) <= most
    ]
    return [term for _, _, term in sorted(near)[:MOST_NEAR]]


def distance(one: str, other: str) -> int:
    """Return the edit distance: missing, extra, wrong or swapped letters."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for place, letter in enumerate(one, start=1):
        last, row, older = row, [place], before
        for column, other_letter in enumerate(other, start=1):
            cost = min(last[column] + 1, row[-1] + 1, last[column - 1] + (letter != other_letter))
            if older and column > 1 and letter == other[column - 2] and one[place - 2] == other_letter:
                cost = min(cost, older[column - 2] + 1)
            row.append(cost)
        before = last
    return row[-1]
