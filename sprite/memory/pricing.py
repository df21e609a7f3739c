"""What a model call costs: one small table, in US dollars per million tokens. An unknown price is None, not zero."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Price:
    """US dollars per million tokens."""

    input: float
    output: float

    @property
    def cache_write(self) -> float:
        """Writing a five-minute cache costs a quarter more than plain input (Anthropic's prompt caching)."""
        return self.input * 1.25

    @property
    def cache_read(self) -> float:
        """Reading from the cache costs a tenth of plain input (same source)."""
        return self.input * 0.1


#: List prices as Claude Code 2.1.329 counts them (`costBasis: "list"`); the built-in stand-in is free.
PRICES: Mapping[str, Price] = {
    "claude-haiku-5-5": Price(0.10, 0.50),
    "claude-haiku-4-5": Price(1.00, 5.00),
    "claude-sonnet-5": Price(2.00, 10.00),
    "claude-opus-5-5": Price(4.00, 20.00),
    "offline": Price(0.0, 0.0),
}


def price_of(model: str) -> Price | None:
    """A model's price, dated names included (`claude-haiku-4-5-20251001`); None if it is not known."""
    if model in PRICES:
        return PRICES[model]
    name, _, date = model.rpartition("-")
    return PRICES.get(name) if date.isdecimal() and len(date) == len("20251001") else None


def cost_usd(model: str, usage: Mapping[str, Any]) -> float | None:
    """What a call cost, from the response's usage in tokens; None if the model's price is not known."""
    price = price_of(model)
    if price is None:
        return None
    millionths = (
        price.input * (usage.get("input_tokens") or 0)
        + price.output * (usage.get("output_tokens") or 0)
        + price.cache_write * (usage.get("cache_creation_input_tokens") or 0)
        + price.cache_read * (usage.get("cache_read_input_tokens") or 0)
    )
    return millionths / 1_000_000
