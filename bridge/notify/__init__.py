"""Reaching a person who has no page open: what is told, and by which channels."""
