"""Off-the-record requests: detected as wishes, and not when only mentioned, by the rules' own examples."""

from __future__ import annotations

import pytest

from sprite.privacy.private_text import WishFile, compiled_wishes, is_off_record
from sprite.privacy.secret_values import read

WISHES = read("wishes.toml", WishFile)


def test_request_in_own_words_matches_its_rule() -> None:
    for rule in WISHES.wish:
        own = compiled_wishes(WISHES, (rule,))
        for said in rule.matches:
            assert is_off_record(said), said
            assert own.search(said.lower().replace("\u2019", "'")), said


def test_mention_is_no_request() -> None:
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
def test_quoted_or_pasted_request_is_ignored(said: str) -> None:
    assert not is_off_record(said)


def test_request_around_paste_is_detected() -> None:
    paste = "A long report about nothing in particular. " * 60
    assert is_off_record(f"Off the record:\n\n{paste}")
    assert is_off_record(f"What do you think?\n\n{paste}\n\nThis is not for your memory.")


@pytest.mark.parametrize(
    "piece", ["off the record ", "don't remember ", "not for your ", "> ", "'", '"', "`", ", and "]
)
def test_text_full_of_keywords_is_read_completely(piece: str) -> None:
    assert is_off_record(piece * (30_000 // len(piece))) in {True, False}
