"""Texts are cut to pieces before they are embedded; the setting is checked."""

from __future__ import annotations

import pytest

from sprite.config import embeddings
from sprite.search.meaning.vectors import PIECE_CHARS, piece


@pytest.mark.parametrize("end", [". ", "\n", "\u3002"])
def test_piece_ends_with_sentence(end: str) -> None:
    text = f"{'a' * 500}{end}{'b' * 900}"
    assert piece(text) == f"{'a' * 500}{end}".strip()


def test_piece_without_sentence_ends_at_word() -> None:
    assert piece("word " * 400).endswith("word")
    assert len(piece("x" * 2000)) == PIECE_CHARS
    assert piece("  short \n") == "short"


@pytest.mark.parametrize("text", ["off", "bundled", "https://example.org/v1?model=m", "http://127.0.0.1:8080/v1"])
def test_embeddings_setting_is_kept(text: str) -> None:
    assert embeddings(text) == text


@pytest.mark.parametrize("text", ["on", "http://example.org/v1", "ftp://example.org"])
def test_embeddings_setting_refuses_others(text: str) -> None:
    with pytest.raises(ValueError, match="must"):
        embeddings(text)
