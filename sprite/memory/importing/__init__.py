"""Reads what other programs kept of conversations, and the notes people wrote for them: one reader for each kind."""
