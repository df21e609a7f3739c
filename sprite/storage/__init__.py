"""SQLite: how files are opened, locked, read and written."""

__all__ = ["changes", "connection", "full_text"]
