"""Models that a sprite may use, and their prices."""

from __future__ import annotations

from fnmatch import fnmatchcase

from sprite.prices import PRICES, Price, price_of, undated

_FREE = Price(0.0, 0.0, 0.0, 0.0, 0.0)


class Models:
    """Allow-list of models.

    `allowed` holds names or patterns (`claude-*`); if it is empty, each model with a price is allowed. `is_free` is
    for the built-in offline model, which answers to any name and costs nothing.
    """

    def __init__(self, *, allowed: tuple[str, ...] = (), is_free: bool = False) -> None:
        self._allowed = allowed
        self._is_free = is_free

    def price(self, model: str) -> Price | None:
        """Return the price of a model, dated names included; None if it is not known."""
        return _FREE if self._is_free else price_of(model)

    def allows(self, model: str) -> bool:
        """Return whether a sprite may use the model."""
        if not self._allowed:
            return price_of(model) is not None
        return any(fnmatchcase(name, pattern) for name in (model, undated(model)) for pattern in self._allowed)

    def names(self) -> list[str]:
        """Return the names of the allowed models that have a price."""
        return [name for name in PRICES if self.allows(name)]
