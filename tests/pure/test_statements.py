"""Which sentences a text says: the same words in their order, about the same thing."""

from __future__ import annotations

import pytest

from sprite.forget.statements import Statements, core, statement, without

TEA = "The user prefers tea to coffee."
LUND = "The user lives in Lund."


def found(learned: str, text: str) -> str:
    return "|".join(text[start:end] for start, end in Statements([statement(learned)]).spans(text))


@pytest.mark.parametrize(
    ("learned", "text", "words"),
    [
        (TEA, "I prefer tea to coffee.", "prefer tea to coffee"),
        (TEA, "- Prefers **tea** to coffee", "Prefers **tea** to coffee"),
        (TEA, "My name is Ada, and I PREFER\ntea to coffee!", "PREFER\ntea to coffee"),
        (TEA, '{"said": "prefers tea to coffee"}', "prefers tea to coffee"),
        (LUND, "Works in Malmö and lives in Lund", "lives in Lund"),
        (LUND, "Hi, I'm Ada, I live in Lund with Bo", "live in Lund"),
        ("The user is Ada.", "Hi, I'm Ada.", "Ada"),
        ("The user's codename is Quibblewort.", "your codename is Quibblewort", "codename is Quibblewort"),
        ("Bo's codename is Quibblewort.", "I told her Bo's codename is Quibblewort", "Bo's codename is Quibblewort"),
        ("The project heron1 is in C.", "In May the project heron1 is in C", "project heron1 is in C"),
        ("私は紅茶が好き", "実は私は紅茶が好きです", "私は紅茶が好き"),
    ],
)
def test_text_says_statement(learned: str, text: str, words: str) -> None:
    assert found(learned, text) == words


@pytest.mark.parametrize(
    ("learned", "text"),
    [
        (TEA, "I prefer coffee to tea."),
        (TEA, "I prefer hot tea to coffee."),
        (TEA, "I prefer tea and coffee."),
        (LUND, "My sister lives in Lund"),
        (LUND, "my sister's family lives in Lund"),
        ("The user is vegetarian.", "My sister is vegetarian."),
        ("The user is Ada.", "Bo and Ada came."),
        ("The user's codename is Quibblewort.", "Bo's codename is Quibblewort"),
        ("The project heron1 is in C.", "The project heron1 is in C++."),
        ("The project heron1 is in C.", "The project heron2 is in C."),
        ("The user pays 4 euros.", "I pay 4.50 euros, I pay 4.50"),
        ("The user takes plan 4.", "I take plan 4.5"),
        ("The user works before lunch.", "I work after lunch."),
    ],
)
def test_text_says_other_thing(learned: str, text: str) -> None:
    assert found(learned, text) == ""


def test_empty_text_is_no_statement() -> None:
    assert [statement(text) for text in ("", " - ", "The user", "++")] == [None] * 4
    assert Statements([None]).spans("anything") == []


def test_core_ignores_mark_subject_and_punctuation() -> None:
    assert core("- Prefers tea to coffee") == core("The user prefers tea to coffee.")


def test_without_keeps_longer_and_cuts_shorter_spans() -> None:
    assert without([(2, 6)], [(0, 8)]) == []
    assert without([(2, 6)], [(2, 4)]) == [(4, 6)]
    assert without([(2, 9)], [(4, 6)]) == [(2, 4), (6, 9)]
    assert without([(2, 6)], [(2, 6)]) == [(2, 6)]
    assert without([(5, 8), (2, 6)], []) == [(2, 8)]
