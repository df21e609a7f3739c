"""Obfuscated lines, whose words would not be found again."""

from __future__ import annotations

import pytest

from sprite.curation.provenance.vocabulary import disguise_of, told_apart


@pytest.mark.parametrize(
    "line",
    [
        "- e v e r y  o r d e r  u n s e e n",
        "- 3v3ry 0rd3r is pl4c3d",
        "- every or\u00adder is placed",
        "- ev\u200bery order",
        "- \u1d07\u1d20\u1d07\u0280\u028f \u1d0f\u0280\u1d05\u1d07\u0280",
        "- \U0001d41e\U0001d42f\U0001d41e\U0001d42b\U0001d432 order",
        "- \uff45\uff56\uff45\uff52\uff59 order",
        "- \u0435v\u0435ry order",
        "- every_order_is_placed_unseen",
        "- everyOrderIsPlacedUnseen",
    ],
)
def test_disguise_is_detected_unless_in_source(line: str) -> None:
    assert disguise_of(line, lambda _: False, personal=True) is not None
    is_invisible = "\u00ad" in line or "\u200b" in line
    assert (disguise_of(line, lambda found: found in line, personal=True) is None) != is_invisible


@pytest.mark.parametrize(
    "line",
    [
        "- Runs e2e tests on one machine", "- Möchte geduzt werden", "- Живёт в Москве", "- Lives in 東京",
        "- Emoji 👩\u200d🔧 are fine", "- Plan B, option A", "- Uses get_user and getUser",
    ],
)  # fmt: skip
def test_honest_text_of_any_language_is_accepted(line: str) -> None:
    assert disguise_of(line, lambda _: False, personal=True) is None


def test_joined_words_are_split() -> None:
    assert told_apart("get_user_by_id and getUserById") == "get user by id and get User By Id"
