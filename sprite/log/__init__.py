"""transcript.db, the append-only log."""
