"""Excerpts of long texts: the most relevant window, with whole sentences if possible."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sprite.search.ranking import PASSAGE_CHARS, best_passage, stem, stems

HAY = "Nothing of the kind was ever said here. "


def shown(text: str, **weights: float) -> str:
    start, end = best_passage(text, weights)
    return text[start:end]


def test_short_text_is_returned_whole() -> None:
    assert shown("a needle in no hay", needl=1.0) == "a needle in no hay"


def test_window_covers_most_weight() -> None:
    text = f"{HAY * 30}One needle. {HAY * 30}A needle and a thread. {HAY * 30}"
    part = shown(text, needl=1.0, thread=2.0)
    assert "A needle and a thread." in part
    assert len(part) <= PASSAGE_CHARS


def test_repeated_word_weighs_once() -> None:
    text = f"{'needle ' * 30}{HAY * 30}needle and thread {HAY * 30}"
    assert "thread" in shown(text, needl=1.0, thread=1.0)


def test_passage_starts_at_sentence_or_line() -> None:
    assert shown(f"{HAY * 30}There is a needle. {HAY * 30}", needl=1.0).startswith("Nothing")
    assert shown(f"{'hay ' * 100}\nThe needle is here {'hay ' * 100}", needl=1.0).startswith("The needle")


def test_passage_without_matches_is_beginning() -> None:
    assert shown(HAY * 30).startswith("Nothing of the kind")


def test_chinese_matches_by_character_pairs() -> None:
    assert stems(['"乌 龙"', '"tea"']) == ["乌龙", "tea"]
    part = shown(f"{'没有什么特别的事情。' * 20}我喜欢乌龙茶。{'没有什么特别的事情。' * 20}", 乌龙=1.0)
    assert "我喜欢乌龙茶" in part


@pytest.mark.parametrize(
    ("word", "other"),
    [("invoice", "invoices"), ("travel", "travelling"), ("make", "making"), ("study", "studies"), ("Malmö", "malmo")],
)
def test_word_forms_share_stem(word: str, other: str) -> None:
    assert stem(word) == stem(other)


@given(st.text(), st.dictionaries(st.text(max_size=3), st.floats(0.1, 9), max_size=3), st.integers(1, 400))
def test_arbitrary_text_has_passage(text: str, weights: dict[str, float], chars: int) -> None:
    start, end = best_passage(text, {**weights, **dict.fromkeys(stems(text[:20].split()), 1.0)}, chars)
    assert 0 <= start <= end <= len(text)


WORDS = st.lists(st.from_regex(r"[a-z]{1,9}[.!]?", fullmatch=True), max_size=120)


@given(WORDS, WORDS, st.sampled_from([" ", "\n", ". "]))
def test_passage_has_match_between_word_borders(before: list[str], after: list[str], space: str) -> None:
    text = space.join([*before, "N\u00e9edle", *after])
    part = shown(text, needl=1.0)
    assert "N\u00e9edle" in part
    assert len(part) <= PASSAGE_CHARS
    words = set(re.findall(r"\w+", text))
    assert set(re.findall(r"\w+", part)) <= words
