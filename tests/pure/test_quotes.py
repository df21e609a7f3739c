"""Matching a quote in a text: by its words and numbers, in bounded time."""

from __future__ import annotations

import random
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sprite.curation.provenance.evidence import Voice, find_quote

RULES = "Two rules: run `make lint` first, and never push to main \u2013 always a branch named ada/<topic>, please!"


def found(quote: str, text: str = RULES) -> str | None:
    """Return the text's wording of a quote."""
    place = find_quote(quote, [Voice(text, "user", "person")], {})
    return None if place is None else place[1]


@pytest.mark.parametrize(
    ("quote", "wording"),
    [
        ("run `make lint` first", "run `make lint` first"),
        ("Run make lint first.", "run `make lint` first"),
        ("never push to main - always a branch", "never push to main \u2013 always a branch"),
        ("Two rules, run 'make lint' first", "Two rules: run `make lint` first"),
        ("run make lint ... always a branch", "run `make lint … always a branch"),
        ("run make lint… named ada/<topic>", "run `make lint … named ada/<topic"),
        ("...make lint first...", "make lint` first"),
        ("run lint first", "run `make lint` first"),
        (
            "never push main always a branch named ada topic please",
            "never push to main \u2013 always a branch named ada/<topic>, please",
        ),
        (
            "run the make lint first and never push to main always a branch",
            "run `make lint` first, and never push to main \u2013 always a branch",
        ),
    ],
    ids=[
        "as it is",
        "full stop",
        "dash",
        "comma",
        "ellipsis",
        "sign of an ellipsis",
        "ellipsis around",
        "a word left out",
        "two words left out",
        "a word too much",
    ],
)
def test_quote_matches_across_separators(quote: str, wording: str) -> None:
    assert found(quote) == wording


@pytest.mark.parametrize(
    "quote",
    [
        "a branch always named ada topic",
        "always push to main",
        "always a branch ... run make lint",
        "run make test first",
        "lin",
        "",
        "...",
        "`` -- \u2013",
    ],
    ids=["another order", "never left out", "halves in the wrong order", "another word", "half a word", "empty", "dots",
         "signs"],
)  # fmt: skip
def test_quote_with_other_words_does_not_match(quote: str) -> None:
    assert found(quote) is None


def test_number_in_long_quote_must_match() -> None:
    text = "from now on please send the three monthly reports of the studio to Ilse by mail on day 5 of each month"
    assert found(text.replace("please", "kindly"), text) is not None
    assert found(text.replace("5", "15"), text) is None


TEXTS = {
    "prose": "".join(random.Random(5).choices("abcdefgh ", k=200_000)),  # noqa: S311 - no secret
    "one word": "word " * 40_000,
    "nearly the quote": "keep the books of the studio in kronor and " * 5_000,
    "no space": "x" * 200_000,
    "signs": "`-" * 100_000,
    "no space between words": "日" * 70_000,
}


@pytest.mark.parametrize("name", TEXTS)
def test_long_texts_are_searched(name: str) -> None:
    quotes = [
        "keep all books of our studio in kronor or in euros and pay it",
        "word " * 150,
        "日本" * 100,
        "a ... b ... x",
    ]
    text, joined = Voice(TEXTS[name], "user", "person"), dict[str, str]()
    for quote in quotes:
        find_quote(quote, [text], joined)


WORDS = st.lists(st.sampled_from(["Ada", "lives", "in", "Lund", "not", "5", "日", "don't"]), min_size=1, max_size=30)
SIGNS = st.sampled_from([" ", ", ", "\n", " - ", "` ", "  "])


@given(WORDS, WORDS, WORDS, SIGNS, SIGNS)
def test_words_are_found_with_original_punctuation(
    before: list[str], quote: list[str], after: list[str], sign: str, other: str
) -> None:
    text = sign.join([*before, *quote, *after])
    wording = found(other.join(quote).upper(), text)
    assert wording is not None
    assert wording in text
    assert re.findall(r"[^\W_]+", wording.casefold()) == re.findall(r"[^\W_]+", " ".join(quote).casefold())


@given(st.text(max_size=200), st.text(max_size=60))
def test_match_returns_original_wording(text: str, quote: str) -> None:
    wording = found(quote, text)
    assert wording is None or all(part in text for part in wording.split(" … "))
