"""Cost of a model call."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from sprite.common.prices import PRICES, LongPrompt, Price, Usage, cost_usd, price_of
from sprite.config import DEFAULT_CURATOR_MODEL


def test_curator_model_has_price() -> None:
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
def test_dated_name_uses_model_price_unknown_has_none(model: str, known: bool) -> None:
    assert (price_of(model) is not None) == known
    assert (cost_usd(model, {"input_tokens": 5}) is not None) == known


def test_tokens_cost_per_million_with_cache_prices() -> None:
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
def test_empty_usage_costs_nothing(usage: dict[str, Any]) -> None:
    assert cost_usd("claude-haiku-4-5", usage) == 0.0


def test_fake_model_is_free() -> None:
    assert cost_usd("offline", {"input_tokens": 10**6, "output_tokens": 10**6}) == 0.0


#: Prices of the test, so that the figures below stay true when the table changes.
MODEL = Price(0.1, 0.5, 0.125, 0.2, 0.01, LongPrompt(0.5, 2.5, 0.625, 1, 0.05, above=100_000), 0.01, 1.1)


@pytest.mark.parametrize(
    ("usage", "usd", "usd_with_three_searches_in_the_us"),
    [
        (Usage(), 0.0, 0.03),
        (Usage(7, 1), 1.2000000000000002e-06, 0.030001319999999998),
        (Usage(1000, 100), 0.00015, 0.030164999999999997),
        (Usage(3, 512, 18_500, 900), 0.0005537999999999999, 0.03060918),
        (Usage(12, 4096, 90_000, 9_988), 0.0041976999999999995, 0.03461747),
        (Usage(12, 4096, 90_000, 9_989, 9_000), 0.024364125, 0.0568005375),
        (Usage(150_001, 64_000, 0, 600, 60), 0.235398, 0.2889378),
        (Usage(1, 333, 777_777, 123_456, 123_456), 0.16317785, 0.20949563500000004),
    ],
)
def test_call_cost_is_exact(usage: Usage, usd: float, usd_with_three_searches_in_the_us: float) -> None:
    assert MODEL.cost(usage) == usd
    special = msgspec.structs.replace(usage, web_searches=3, is_us_only=True)
    assert MODEL.cost(special) == usd_with_three_searches_in_the_us


def test_usage_counts_all_fields_and_damaged_has_none() -> None:
    """A damaged usage has no cost."""
    said = {"input_tokens": 1_000_000, "server_tool_use": {"web_search_requests": 3}, "inference_geo": "us"}
    assert cost_usd("claude-haiku-4-5", said) == pytest.approx(1.1 + 0.03)
    assert cost_usd("claude-haiku-4-5", {"input_tokens": "many"}) is None
