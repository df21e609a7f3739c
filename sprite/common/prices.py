"""Cost of a model call: the one table (`sprite/common/prices.json`) and the one formula. An unknown price is None."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import msgspec

TABLE = Path(__file__).resolve().parent / "prices.json"
#: `claude-haiku-4-5-20251001` costs what `claude-haiku-4-5` does.
_DATE_DIGITS = len("20251001")
_MILLION = 1_000_000

_Count = Annotated[int, msgspec.Meta(ge=0, le=1 << 40)]


class Usage(msgspec.Struct, frozen=True):
    """Tokens of one call, each counted once; `cache_write` includes `cache_write_1h`."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0
    cache_write_1h: int = 0
    web_searches: int = 0
    #: Whether the call was restricted to the United States as requested, which costs more.
    is_us_only: bool = False

    @property
    def prompt_tokens(self) -> int:
        """All tokens that the model read."""
        return self.input + self.cache_read + self.cache_write


class _CacheCreation(msgspec.Struct):
    ephemeral_1h_input_tokens: _Count | None = None


class _ServerTools(msgspec.Struct):
    web_search_requests: _Count | None = None


class ApiUsage(msgspec.Struct):
    """A response's `usage` in the API's format. An event of a stream contains only a part of it."""

    input_tokens: _Count | None = None
    output_tokens: _Count | None = None
    cache_read_input_tokens: _Count | None = None
    cache_creation_input_tokens: _Count | None = None
    cache_creation: _CacheCreation | None = None
    server_tool_use: _ServerTools | None = None
    inference_geo: str | None = None

    def upon(self, known: Usage) -> Usage:
        """Return the known usage updated by this event of a stream, whose counts are from the start."""
        hourly = self.cache_creation.ephemeral_1h_input_tokens if self.cache_creation else None
        searches = self.server_tool_use.web_search_requests if self.server_tool_use else None
        written = _either(self.cache_creation_input_tokens, known.cache_write)
        return Usage(
            input=_either(self.input_tokens, known.input),
            output=_either(self.output_tokens, known.output),
            cache_read=_either(self.cache_read_input_tokens, known.cache_read),
            cache_write=written,
            cache_write_1h=min(_either(hourly, known.cache_write_1h), written),
            web_searches=_either(searches, known.web_searches),
            is_us_only=known.is_us_only if self.inference_geo is None else self.inference_geo == "us",
        )


def _either(said: int | None, known: int) -> int:
    return known if said is None else said


class Rates(msgspec.Struct, frozen=True):
    """Prices in US dollars per million tokens. `cache_write` is for five minutes, `cache_write_1h` for an hour."""

    input: float
    output: float
    cache_write: float
    cache_write_1h: float
    cache_read: float

    def tokens_usd(self, usage: Usage) -> float:
        """Return the cost of the tokens at these rates, for any prompt size."""
        millionths = (
            self.input * usage.input
            + self.output * usage.output
            + self.cache_write * (usage.cache_write - usage.cache_write_1h)
            + self.cache_write_1h * usage.cache_write_1h
            + self.cache_read * usage.cache_read
        )
        return millionths / _MILLION


class LongPrompt(Rates, frozen=True):
    """Rates for every token of a call whose prompt, including cached parts, exceeds `above` tokens."""

    above: int


class Price(Rates, frozen=True):
    """A model's prices: `web_search` for each search by the API, `us_only` a factor for calls in the United States."""

    long_prompt: LongPrompt | None = None
    web_search: float = 0.0
    us_only: float = 1.0

    def cost(self, usage: Usage) -> float:
        """Return the cost of a call in US dollars."""
        long = self.long_prompt
        rates = long if long is not None and usage.prompt_tokens > long.above else self
        tokens = rates.tokens_usd(usage) * (self.us_only if usage.is_us_only else 1.0)
        return tokens + self.web_search * usage.web_searches

    def least(self, prompt_tokens: int, output_tokens: int) -> float:
        """Return the lowest cost of a call with these tokens: the whole prompt comes from the cache."""
        return self.cost(Usage(cache_read=prompt_tokens, output=output_tokens))

    def most(self, prompt_tokens: int, output_tokens: int, web_searches: int = 0, read_again: int = 0) -> float:
        """Return the highest cost of a call: its prompt is written to the dearest cache, in the dearest region.

        `read_again` are the tokens that the API's own tools make the model read a second time.
        """
        return self.cost(
            Usage(
                input=read_again,
                cache_write=prompt_tokens,
                cache_write_1h=prompt_tokens,
                output=output_tokens,
                web_searches=web_searches,
                is_us_only=True,
            )
        )


class _Table(msgspec.Struct, frozen=True):
    web_search: float
    us_only: float
    models: dict[str, Price]


def _read(table: bytes) -> dict[str, Price]:
    known = msgspec.json.decode(table, type=_Table)
    return {
        name: msgspec.structs.replace(price, web_search=known.web_search if price.input else 0.0, us_only=known.us_only)
        for name, price in known.models.items()
    }


#: The log's name for the fake model, regardless of the requested name.
OFFLINE = "offline"
#: Prices by model; the built-in fake model (`offline`) is free.
PRICES: Mapping[str, Price] = _read(TABLE.read_bytes())


def undated(model: str) -> str:
    """Return a model's name without the date at its end (as in `claude-haiku-4-5-20251001`)."""
    name, _, date = model.rpartition("-")
    return name if date.isdecimal() and len(date) == _DATE_DIGITS else model


def price_of(model: str) -> Price | None:
    """Return a model's price, also for a dated name, or None if unknown."""
    return PRICES.get(model) or PRICES.get(undated(model))


#: The highest of each price: an estimate for a model without a known price.
DEAREST = Price(
    **{name: max(getattr(price, name) for price in PRICES.values()) for name in Rates.__struct_fields__},
    web_search=max(price.web_search for price in PRICES.values()),
    us_only=max(price.us_only for price in PRICES.values()),
)


def cost_usd(model: str | None, usage: Mapping[str, Any]) -> float | None:
    """Return a call's cost from its `usage`, or None if it is unknown; with `model` None, at the highest prices."""
    price = DEAREST if model is None else price_of(model)
    if price is None:
        return None
    try:
        return price.cost(msgspec.convert(usage, ApiUsage).upon(Usage()))
    except msgspec.ValidationError:
        return None
