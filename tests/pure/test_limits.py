"""Limits of curated text, answers and prompts are consistent in every script."""

from __future__ import annotations

import pytest

from sprite.curation.extraction import ELEMENT_TOKENS, MAX_REFUSED_CHARS, MOST_REFUSED, NEAREST_TOKENS, STANDING_TOKENS
from sprite.curation.prompt import OpenLearning, build_prompt
from sprite.memory.files import (
    BYTE_LIMIT,
    CURATED,
    CURATED_TOKENS,
    LEARNINGS_TOKENS,
    MAX_ANSWER_TOKENS,
    PROMPT_BUDGET_TOKENS,
    estimate_tokens,
    over_limit,
    over_together,
)

#: The smallest output limit of the Claude 4 models.
LEAST_OUTPUT_TOKENS = 32_000
SCRIPTS = ["a", "é", "Ж", "漢", "🦊", "a漢"]


def full(sign: str) -> str:
    """Return a file at its byte limit."""
    return sign * (BYTE_LIMIT // len(sign.encode()))


def accepted(sign: str) -> dict[str, str]:
    """Return the four files, filled one after another with a script up to the limits."""
    files = dict.fromkeys(CURATED, "")
    for name in CURATED:
        text = full(sign)
        while over_limit(name, text) or over_together(name, text, files):
            text = text[: len(text) * 9 // 10]
        files[name] = text
    return files


@pytest.mark.parametrize("sign", SCRIPTS)
def test_full_rewrite_fits_answer_with_learnings(sign: str) -> None:
    files = accepted(sign)
    answer = "".join(f"{name.removesuffix('.md').upper()}_MD_UPDATE:\n```\n{files[name]}\n```\n" for name in CURATED)
    learnings = 'FACT [t31] The user has a plant. | "my plant"\n' * 100
    assert estimate_tokens(learnings) <= LEARNINGS_TOKENS
    assert estimate_tokens(answer + learnings) <= MAX_ANSWER_TOKENS <= LEAST_OUTPUT_TOKENS


def test_four_full_english_files_fit_limit() -> None:
    assert all(text == full("a") for text in accepted("a").values())
    assert MAX_ANSWER_TOKENS == CURATED_TOKENS + LEARNINGS_TOKENS


@pytest.mark.parametrize("sign", SCRIPTS)
def test_full_prompt_leaves_room_for_turns(sign: str) -> None:
    wishes = [OpenLearning(n, "PREFERENCE", "x", "user", 0.0) for n in range(STANDING_TOKENS // ELEMENT_TOKENS)]
    learnings = [OpenLearning(n, "FACT", "x", "user", 0.0) for n in range(NEAREST_TOKENS // ELEMENT_TOKENS)]
    prompt = build_prompt(
        files=accepted(sign),
        open_learnings=wishes + learnings,
        turns=[],
        refused=["x" * MAX_REFUSED_CHARS] * MOST_REFUSED,
    )
    assert PROMPT_BUDGET_TOKENS - prompt.tokens >= 25_500


def test_text_over_limit_may_shrink_but_not_grow() -> None:
    files = dict.fromkeys(CURATED, full("漢"))
    assert over_together("user.md", files["user.md"], files) is not None
    assert over_together("user.md", files["user.md"][:-1], files) is None
