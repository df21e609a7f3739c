"""What model calls cost, by the price table that the sprite ships (`sprite/prices.json`).

An unknown price is None, never zero.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from bridge.llm.usage_meter import Usage

TABLE = Path(__file__).resolve().parents[2] / "sprite" / "prices.json"
#: `claude-haiku-4-5-20251001` costs what `claude-haiku-4-5` does.
_DATE_DIGITS = len("20251001")
_MILLION = 1_000_000


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
    """A model's prices.

    `web_search` is US dollars for one search that the API makes, `us_only` what tokens cost times as much that are
    answered in the United States only.
    """

    long_prompt: LongPrompt | None = None
    web_search: float = 0.0
    us_only: float = 1.0

    def cost(self, usage: Usage) -> float:
        """What a call came to, in US dollars."""
        rates = self._rates(usage.prompt_tokens)
        millionths = (
            rates.input * usage.input
            + rates.output * usage.output
            + rates.cache_write * (usage.cache_write - usage.cache_write_1h)
            + rates.cache_write_1h * usage.cache_write_1h
            + rates.cache_read * usage.cache_read
        )
        tokens = millionths / _MILLION * (self.us_only if usage.is_us_only else 1.0)
        return tokens + self.web_search * usage.web_searches

    def least(self, prompt_tokens: int, output_tokens: int) -> float:
        """A call with a short answer whose prompt is in the cache already."""
        rates = self._rates(prompt_tokens)
        return (rates.cache_read * prompt_tokens + rates.output * output_tokens) / _MILLION

    def most(self, prompt_tokens: int, output_tokens: int) -> float:
        """A call whose prompt is written to the dearest cache, answered at full length."""
        rates = self._rates(prompt_tokens)
        return (rates.cache_write_1h * prompt_tokens + rates.output * output_tokens) / _MILLION

    def _rates(self, prompt_tokens: int) -> Rates:
        if self.long_prompt is not None and prompt_tokens > self.long_prompt.above:
            return self.long_prompt
        return self


_FREE = Price(0.0, 0.0, 0.0, 0.0, 0.0)


class _Table(msgspec.Struct, frozen=True):
    web_search: float
    us_only: float
    models: dict[str, Price]


class Prices:
    """The prices, and which models may be asked for.

    `allowed` are names or patterns (`claude-*`); none allows each model with a price. `is_free` is for the built-in
    offline model, which answers by any name and costs nothing.
    """

    def __init__(self, table: Path = TABLE, *, allowed: tuple[str, ...] = (), is_free: bool = False) -> None:
        """Reads the table. OSError or msgspec.MsgspecError: the installation is damaged."""
        known = msgspec.json.decode(table.read_bytes(), type=_Table)
        self._models = {
            name: msgspec.structs.replace(
                price, web_search=known.web_search if price.input else 0.0, us_only=known.us_only
            )
            for name, price in known.models.items()
        }
        self._allowed = allowed
        self._is_free = is_free

    def of(self, model: str) -> Price | None:
        """A model's price, dated names included; None if it is not known."""
        if self._is_free:
            return _FREE
        return self._models.get(model) or self._models.get(_undated(model))

    def allows(self, model: str) -> bool:
        """Whether a sprite may ask for the model."""
        if not self._allowed:
            return model in self._models or _undated(model) in self._models
        return any(fnmatchcase(name, pattern) for name in (model, _undated(model)) for pattern in self._allowed)

    def names(self) -> list[str]:
        """The models that can be named: those with a price that are allowed."""
        return [name for name in self._models if self.allows(name)]


def _undated(model: str) -> str:
    name, _, date = model.rpartition("-")
    return name if date.isdecimal() and len(date) == _DATE_DIGITS else model
