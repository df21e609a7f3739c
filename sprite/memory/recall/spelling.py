"""Words of a vocabulary that are spelled nearly like one that is unknown (pure)."""

from __future__ import annotations

from collections.abc import Iterable

#: A word of fewer letters is near to too many others; from so many letters on two mistakes are forgiven.
LEAST_LETTERS = 4
TWO_MISTAKES = 8
MOST_NEAR = 2


def may_be_misspelled(word: str) -> bool:
    """Whether it is a word in which a mistake can be told from another word."""
    return len(word) >= LEAST_LETTERS and word.isascii() and word.isalpha()


def near_spellings(word: str, wanted: str, vocabulary: Iterable[tuple[str, int]]) -> list[str]:
    """The nearest of the vocabulary's stems, the most frequent of equals; each comes with how many texts have it.

    `wanted` is the word's own stem, by the same rules: it is as far from the right one as the mistake is.
    """
    most = 2 if len(word) >= TWO_MISTAKES else 1
    letters = set(wanted)
    near = [
        (mistakes, -count, term)
        for term, count in vocabulary
        # Most are known to be far off without being compared letter by letter.
        if abs(len(term) - len(wanted)) <= most
        and len(letters ^ set(term)) <= 2 * most
        and (mistakes := distance(wanted, term)) <= most
    ]
    return [term for _, _, term in sorted(near)[:MOST_NEAR]]


def distance(one: str, other: str) -> int:
    """How many letters were left out, added, mistaken, or typed in the wrong order."""
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
