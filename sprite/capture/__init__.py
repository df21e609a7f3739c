"""Capture: SDK hooks to one observation per turn."""
