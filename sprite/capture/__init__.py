"""Capture: SDK hooks to one observation per turn."""

__all__ = ["hooks", "recorder", "turn_buffer"]
