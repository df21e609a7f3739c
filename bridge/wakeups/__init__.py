"""Wake sprites when an action is due."""

__all__ = ["waker"]
