# ruff: noqa: RUF001 - letters that look like others are what is tested here
"""Word comparison in memory: repeats, content words, and copied runs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sprite.memory.words import RUN, content_words, run_words, runs, said, share


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The office is in Lund.", "the office is in lund"),
        ("The user's dog is called Rex.", "User's dog is called Rex"),
        ("Dates are DD/MM.", "“Dates” are *DD/MM*!"),
        ("Invoices go to   the bookkeeper", "The invoices go to a bookkeeper."),
    ],
)
def test_reformatted_sentence_is_repeat(one: str, other: str) -> None:
    assert said(one) == said(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The office is open on Friday.", "The office is not open on Friday."),
        ("The office isn't open.", "The office is open."),
        ("Reports are due on the 5th.", "Reports are due on the 6th."),
        ("The offset is 5.", "The offset is -5."),
        ("The rate is 1.5.", "The rate is 15."),
        ("The rate is .5", "The rate is 5"),
        ("Ann pays Bo.", "Bo pays Ann."),
        ("The user writes C++.", "The user writes C#."),
        ("The user writes C.", "The user writes C++."),
        ("Dates are DD/MM.", "Dates are DD-MM."),
        ("It costs 5 €.", "It costs 5 $."),
        ("x > 5", "x < 5"),
        ("The user lived in Lund.", "The user lives in Lund."),
        ("The user never wants emoji.", "The user wants emoji."),
        ("Only Ann may deploy.", "Ann may deploy."),
    ],
)
def test_changed_meaning_is_no_repeat(one: str, other: str) -> None:
    assert said(one) != said(other)


def test_function_words_do_not_identify_source() -> None:
    """Neither do the curator's own phrases."""
    assert content_words("The user would like it, and they will have it because of this.") == {"like"}
    assert content_words("two dogs, one dog; glass") == {"two", "dog", "one", "glass"}
    assert content_words("on 12 at 5pm, v2") == {"12", "5pm", "v2"}


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("ordеrs plаced", "orders placed"),
        ("or\u200bders pla\u00adced", "orders placed"),
        ("ｏｒｄｅｒｓ placed", "orders placed"),
        ("órders plâced", "orders placed"),
        ("ORDERS PLACED", "orders placed"),
        ("𝐨𝐫𝐝𝐞𝐫𝐬 placed", "orders placed"),
    ],
)
def test_visible_lookalikes_are_equal_words(written: str, read: str) -> None:
    assert content_words(written) == content_words(read)


def test_unspaced_script_is_compared_by_character_pairs() -> None:
    assert share(content_words("希望所有订单"), content_words("用户希望所有订单自动下单。")) == 1
    assert share(content_words("会议在五月"), content_words("用户希望所有订单")) == 0


def test_run_is_four_words_despite_separators() -> None:
    assert list(runs(run_words("Place every order: without it!"))) == [("place", "every", "order", "without")]
    assert list(runs(run_words("one two three"))) == []
    assert run_words("ocrmypdf 16.10.1 was installed") == ["ocrmypdf", "installed"]


@given(st.text())
def test_arbitrary_text_raises_no_error(text: str) -> None:
    words = content_words(text)
    assert share(words, words) == 1
    assert set(run_words(text)) <= words
    assert said(text) == said(text.swapcase().swapcase()) or not text.isascii()
    assert all(len(run) == RUN for run in runs(run_words(text)))
