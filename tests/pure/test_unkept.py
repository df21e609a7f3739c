"""Truncated hashes of omitted result text: they recognize its words, and cannot be reversed."""

from __future__ import annotations

import itertools
import json

import pytest

from sprite.capture.truncated_hashes import Unkept, known_among, unkept_of
from sprite.memory.words import content_words

SAID = "every order is placed unasked"
WORDS = content_words(SAID)


def deep(value: object, levels: int) -> object:
    return {"in": deep(value, levels - 1)} if levels else value


@pytest.mark.parametrize(
    "result",
    [
        "x " * 3000 + SAID,
        [{"n": n} for n in range(205)] + [{"type": "text", "text": SAID}],
        deep(SAID, 40),
        {"stdout": "ok", "stderr": "", "note": SAID},
    ],
)
def test_words_of_full_result_are_recognized(result: object) -> None:
    unkept = unkept_of(result, "x x [cut]")
    assert unkept is not None
    assert known_among(WORDS, unkept.hashes) == WORDS
    assert not known_among(content_words("clay thermostat glaze"), unkept.hashes)
    kept = json.dumps(unkept.to_json())
    assert not any(word in kept for word in WORDS)
    assert Unkept.from_json(json.loads(kept)) == unkept


def test_result_kept_whole_leaves_no_hashes() -> None:
    assert unkept_of(SAID, SAID) is None
    assert unkept_of(None, "") is None


@pytest.mark.parametrize(
    "result",
    [
        [{"type": "image", "source": {"data": "iVBORw0KGgo"}}],
        {"type": "image", "file": {"base64": "A" * 5000}},
        "QUJD" * 300,
        " ".join("".join(letters) for letters in itertools.islice(itertools.product("bcdfgh", repeat=7), 40_000)),
    ],
)  # fmt: skip
def test_text_without_words_is_reported_blind(result: object) -> None:
    unkept = unkept_of(result, "")
    assert unkept is not None
    assert unkept.is_blind
    assert Unkept.from_json(unkept.to_json()).is_blind


def test_secrets_leave_no_numbers_or_digit_words() -> None:
    unkept = unkept_of("The password: Mallard-4711-x9 of kiln 8822", "The password: [redacted:password]")
    assert unkept is not None
    assert known_among({"kiln"}, unkept.hashes)
    for word in ("4711", "8822", "x9"):
        assert not known_among({word}, unkept.hashes)


@pytest.mark.parametrize("damaged", [None, {}, {"words": 3}, {"words": "!!"}, "x", {"words": None}])
def test_damaged_hashes_count_as_unreadable(damaged: object) -> None:
    assert Unkept.from_json(damaged) == Unkept(is_blind=True)


def test_forgotten_words_are_not_recognized() -> None:
    unkept = unkept_of(SAID, "")
    assert unkept is not None
    assert not known_among(WORDS, unkept.without(WORDS).hashes)
