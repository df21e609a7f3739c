"""Removal of text from every store."""

__all__ = ["forget", "plan"]
