"""Recurrence (pure), and firing of due actions."""

__all__ = ["keep_awake", "scheduler"]
