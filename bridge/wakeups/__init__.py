"""Wake sprites when an action is due."""

__all__ = ["due_dates", "waker"]
