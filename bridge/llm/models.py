"""Which models a sprite may ask for, and what they cost here."""

from __future__ import annotations

from fnmatch import fnmatchcase

from sprite.prices import PRICES, Price, price_of, undated

_FREE = Price(0.0, 0.0, 0.0, 0.0, 0.0)


class Models:
    """The models that may be asked for.

    `allowed` are names or patterns (`claude-*`); none allows each model with a price. `is_free` is for the built-in
    offline model, which answers by any name and costs nothing.
    """

    def __init__(self, *, allowed: tuple[str, ...] = (), is_free: bool = False) -> None:
        self._allowed = allowed
        self._is_free = is_free

    def price(self, model: str) -> Price | None:
        """A model's price, dated names included; None if it is not known."""
        return _FREE if self._is_free else price_of(model)

    def allows(self, model: str) -> bool:
        """Whether a sprite may ask for the model."""
        if not self._allowed:
            return price_of(model) is not None
        return any(fnmatchcase(name, pattern) for name in (model, undated(model)) for pattern in self._allowed)

    def names(self) -> list[str]:
        """The models that can be named: those with a price that are allowed."""
        return [name for name in PRICES if self.allows(name)]
