"""The bridge's commands. This package may import everything that they start or query."""

__all__ = ["operate", "serve", "update"]
