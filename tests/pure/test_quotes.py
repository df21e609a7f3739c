"""Matching a quote in a text: by its words, negations and numbers, in bounded time."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sprite.curation.provenance.quotes import Spoken, denials, quote_of

RULES = "Two rules: run `make lint` first, and never push to main \u2013 always a branch named ada/<topic>, please!"


def found(quote: str, text: str = RULES) -> str | None:
    """Return the text's wording of a quote; every reader must agree."""
    spoken = Spoken(text)
    for read in (spoken.as_it_is, spoken.in_parts, spoken.nearly):
        for places in read(quote_of(quote)):
            return spoken.wording(places)
    return None


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
        "push to main always a branch named ada topic please never",
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


def test_negation_or_number_in_quote_must_match() -> None:
    """This holds for a quote of any length."""
    text = "from now on please send the three monthly reports of the studio to Ilse by mail on day 5 of each month"
    assert found(text.replace("please", "kindly"), text) is not None
    assert found(text.replace("please", "never"), text) is None
    assert found(text.replace("please", "do not"), text) is None
    assert found(text.replace("5", "15"), text) is None
    assert found(text, text.replace("please", "never")) is None


@pytest.mark.parametrize(
    ("text", "quote", "denied"),
    [
        ("never have every order placed without asking", "have every order placed without asking", "never have"),
        ("I don't want you to use pip here", "use pip here", "don't want you to use pip"),
        ("Bestell bitte nie ohne R\u00fcckfrage", "ohne R\u00fcckfrage", "nie ohne"),
        ("never commit to main, always a branch", "always a branch", None),
        ("not UTC but local time", "local time", None),
        ("no wait, it's november 8th", "november 8th", None),
        ("No problem we use uv", "we use uv", None),
        ("no orders from them", "orders from them", "no orders"),
        ("They never answer. Use the phone", "Use the phone", None),
        ("never trust it and in all other cases of this kind use the phone", "use the phone", None),
    ],
)
def test_negation_before_quote_denies_it_within_clause(text: str, quote: str, denied: str | None) -> None:
    spoken = Spoken(text)
    ((place,),) = spoken.as_it_is(quote_of(quote))
    denial = spoken.denied_from(place)
    assert (denial is not None) == (denied is not None)
    if denied is not None:
        assert spoken.wording([place], denial).startswith(denied)


def test_denial_between_quote_parts_precedes_second() -> None:
    spoken = Spoken("I want you to order tea and never place other orders")
    (places,) = spoken.in_parts(quote_of("I want you to ... place other orders"))
    assert spoken.wording(places, spoken.denied_from(places[1])) == "I want you to … never place other orders"


def test_denied_quote_is_searched_again() -> None:
    spoken = Spoken("never order it. Well: order it")
    assert [spoken.denied_from(place) for (place,) in spoken.as_it_is(quote_of("order it"))] == [0, None]


def test_negations_match_in_either_spelling() -> None:
    assert denials("You don't, can\u2019t and never will") == denials("don t can t never")


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
    spoken = Spoken(TEXTS[name])
    for quote in quotes:
        for read in (spoken.as_it_is, spoken.in_parts, spoken.nearly):
            next(read(quote_of(quote)), None)


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
    assert quote_of(wording).words == quote_of(" ".join(quote)).words


@given(st.text(max_size=200), st.text(max_size=60))
def test_match_returns_original_wording(text: str, quote: str) -> None:
    spoken = Spoken(text)
    for read in (spoken.as_it_is, spoken.in_parts, spoken.nearly):
        for places in read(quote_of(quote)):
            assert all(part in text for part in spoken.wording(places).split(" … "))
            denials_before = [spoken.denied_from(place) for place in places]
            assert all(at is None or at < place.start for at, place in zip(denials_before, places, strict=True))
