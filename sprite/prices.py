"""What a model call costs, by the price table in `sprite/prices.json`. An unknown price is None, not zero.

The bridge counts by the same file.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

#: `claude-haiku-4-5-20251001` costs what `claude-haiku-4-5` does.
_DATE_DIGITS = len("20251001")
_TABLE = Path(__file__).resolve().parent / "prices.json"


class Rates(msgspec.Struct, frozen=True):
    """US dollars per million tokens; `cache_write` keeps for five minutes, `cache_write_1h` for an hour."""

    input: float
    output: float
    cache_write: float
    cache_write_1h: float
    cache_read: float


class LongPrompt(Rates, frozen=True):
    """What every token of a call costs whose prompt, cached parts included, has more than `above` tokens."""

    above: int


class Price(Rates, frozen=True):
    """A model's prices."""

    long_prompt: LongPrompt | None = None

    def rates(self, prompt_tokens: int) -> Rates:
        """The prices of a call with a prompt of that size."""
        if self.long_prompt is not None and prompt_tokens > self.long_prompt.above:
            return self.long_prompt
        return self


class _Table(msgspec.Struct, frozen=True):
    models: dict[str, Price]


#: By model; the built-in stand-in (`offline`) is free.
PRICES: Mapping[str, Price] = msgspec.json.decode(_TABLE.read_bytes(), type=_Table).models


def price_of(model: str) -> Price | None:
    """A model's price, dated names included (`claude-haiku-4-5-20251001`); None if it is not known."""
    if model in PRICES:
        return PRICES[model]
    name, _, date = model.rpartition("-")
    return PRICES.get(name) if date.isdecimal() and len(date) == _DATE_DIGITS else None


def cost_usd(model: str, usage: Mapping[str, Any]) -> float | None:
    """What a call cost, from the response's usage in tokens; None if the model's price is not known."""
    price = price_of(model)
    if price is None:
        return None
    plain, written, read = (usage.get(f"{kind}input_tokens") or 0 for kind in ("", "cache_creation_", "cache_read_"))
    hourly = min((usage.get("cache_creation") or {}).get("ephemeral_1h_input_tokens") or 0, written)
    rates = price.rates(plain + written + read)
    millionths = (
        rates.input * plain
        + rates.output * (usage.get("output_tokens") or 0)
        + rates.cache_write * (written - hourly)
        + rates.cache_write_1h * hourly
        + rates.cache_read * read
    )
    return millionths / 1_000_000
