"""Similar spellings of an unknown word."""

from __future__ import annotations

import pytest

from sprite.memory.query import distance, may_be_misspelled, near_spellings

VOCABULARY = [("invoic", 3), ("involv", 9), ("invest", 2), ("postgresql", 1), ("tea", 5)]


@pytest.mark.parametrize(
    ("one", "other", "mistakes"),
    [("tea", "tea", 0), ("tea", "tae", 1), ("tea", "te", 1), ("tea", "teas", 1), ("tea", "sea", 1), ("abc", "xyz", 3)],
)
def test_edits_are_counted_like_human_typos(one: str, other: str, mistakes: int) -> None:
    assert distance(one, other) == distance(other, one) == mistakes


@pytest.mark.parametrize(
    ("word", "stem"), [("invocie", "invoci"), ("invoce", "invoc"), ("invoicce", "invoicc"), ("imvoice", "imvoic")]
)
def test_one_edit_matches(word: str, stem: str) -> None:
    assert near_spellings(word, stem, VOCABULARY) == ["invoic"]


def test_two_edits_match_in_long_words_only() -> None:
    """A short word allows none."""
    assert near_spellings("postgersqll", "postgersql", VOCABULARY) == ["postgresql"]
    assert near_spellings("postger", "postger", VOCABULARY) == []
    assert [may_be_misspelled(word) for word in ("tee", "4711", "тест", "teas")] == [False, False, False, True]
