"""The first prompt of a session."""
