"""Recurrence (pure), and firing of due actions."""
