"""The built-in offline model: the Messages API by fixed rules."""

__all__ = ["model"]
