"""SQLite: how files are opened, locked, read and written."""
