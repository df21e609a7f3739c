"""Words that are spelled nearly like one that is unknown."""

from __future__ import annotations

import pytest

from sprite.memory.recall.spelling import as_written, distance, may_be_misspelled, near_spellings

VOCABULARY = [("invoic", 3), ("involv", 9), ("invest", 2), ("postgresql", 1), ("tea", 5)]


@pytest.mark.parametrize(
    ("one", "other", "mistakes"),
    [("tea", "tea", 0), ("tea", "tae", 1), ("tea", "te", 1), ("tea", "teas", 1), ("tea", "sea", 1), ("abc", "xyz", 3)],
)
def test_mistakes_are_counted_as_people_make_them(one: str, other: str, mistakes: int) -> None:
    assert distance(one, other) == distance(other, one) == mistakes


@pytest.mark.parametrize("word", ["invocie", "invoce", "invoicce", "imvoice"])
def test_one_mistake_is_forgiven(word: str) -> None:
    assert near_spellings(word, VOCABULARY) == ["invoic"]


def test_two_are_in_a_long_word_and_none_in_a_short_one() -> None:
    assert near_spellings("postgersqll", VOCABULARY) == ["postgresql"]
    assert [may_be_misspelled(word) for word in ("tee", "4711", "тест", "teas")] == [False, False, False, True]


def test_a_stem_is_told_as_people_wrote_it() -> None:
    assert as_written("invoic", "The Invoice is here, not the invoices: the invoice.") == "invoice"
    assert as_written("invoic", "nothing") == "invoic"
