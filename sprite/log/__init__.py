"""transcript.db, the append-only log."""

__all__ = ["curations", "file_table", "transcript", "turn_index"]
