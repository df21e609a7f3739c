"""What a model call costs."""

from __future__ import annotations

from typing import Any

import pytest

from sprite.config import DEFAULT_CURATOR_MODEL
from sprite.prices import (
    PRICES,
    cost_usd,
    price_of,
)


def test_the_curators_model_has_a_price() -> None:
    assert price_of(DEFAULT_CURATOR_MODEL) is not None


@pytest.mark.parametrize(
    ("model", "known"),
    [
        ("claude-haiku-4-5", True),
        ("claude-haiku-4-5-20251001", True),
        ("claude-haiku-4-5-latest", False),
        ("claude-haiku-4-5-2025", False),
        ("claude-haiku-4", False),
        ("", False),
        ("-20251001", False),
        ("gpt-5", False),
    ],
)
def test_a_dated_name_has_its_models_price_and_an_unknown_one_none(model: str, known: bool) -> None:
    assert (price_of(model) is not None) == known
    assert (cost_usd(model, {"input_tokens": 5}) is not None) == known


def test_tokens_cost_their_price_by_the_million_and_caches_their_own() -> None:
    usage = {
        "input_tokens": 1_000_000,
        "output_tokens": 100_000,
        "cache_creation_input_tokens": 200_000,
        "cache_read_input_tokens": 1_000_000,
    }
    price = PRICES["claude-haiku-4-5"]
    assert (price.input, price.output) == (1.0, 5.0)
    assert cost_usd("claude-haiku-4-5", usage) == pytest.approx(1.0 + 0.5 + 0.25 + 0.1)


@pytest.mark.parametrize("usage", [{}, {"input_tokens": None, "output_tokens": None}, {"service_tier": "standard"}])
def test_a_usage_that_says_nothing_costs_nothing(usage: dict[str, Any]) -> None:
    assert cost_usd("claude-haiku-4-5", usage) == 0.0


def test_the_stand_in_is_free() -> None:
    assert cost_usd("offline", {"input_tokens": 10**6, "output_tokens": 10**6}) == 0.0
