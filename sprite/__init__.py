"""The sprite: an agent on its own computer, and the memory kept for it."""

__version__ = "0.1.0"
