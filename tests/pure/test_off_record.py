"""What is a wish that something is not remembered, and what only talks about it: by the rules' own examples."""

from __future__ import annotations

import pytest

from sprite.privacy.private_text import compiled_wishes, is_off_record
from sprite.privacy.secret_formats import WishFile, read

WISHES = read("wishes.toml", WishFile)


def test_a_wish_in_the_persons_own_words_is_heard_by_its_rule() -> None:
    for rule in WISHES.wish:
        own = compiled_wishes(WISHES, (rule,))
        for said in rule.matches:
            assert is_off_record(said), said
            assert own.search(said.lower().replace("\u2019", "'")), said


def test_what_only_talks_about_it_is_none() -> None:
    assert [said for rule in WISHES.wish for said in rule.ignores if is_off_record(said)] == []


@pytest.mark.parametrize(
    "said",
    [
        "> Off the record: we are being bought\n\nWhat do I answer to this mail?",
        "Translate `off the record: hello` please",
        "```\n# don't remember this\n```\nexplain this comment",
        "Remember this: the party is on Friday.",
        "Forget that I like tea.",
        "Summarise:\n\nFirst.\n\n" + "Off the record: a line of a pasted interview. " * 40 + "\n\nThe end.",
    ],
)
def test_what_is_quoted_or_pasted_is_not_said(said: str) -> None:
    assert not is_off_record(said)


def test_a_wish_before_or_after_a_paste_is_heard() -> None:
    paste = "A long report about nothing in particular. " * 60
    assert is_off_record(f"Off the record:\n\n{paste}")
    assert is_off_record(f"What do you think?\n\n{paste}\n\nThis is not for your memory.")


@pytest.mark.parametrize(
    "piece", ["off the record ", "don't remember ", "not for your ", "> ", "'", '"', "`", ", and "]
)
def test_a_text_full_of_what_it_looks_for_is_read_to_its_end(piece: str) -> None:
    assert is_off_record(piece * (30_000 // len(piece))) in {True, False}
