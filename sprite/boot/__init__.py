"""The first prompt of a session."""

__all__ = ["canvas", "project", "prompt"]
