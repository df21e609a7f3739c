"""Capture, curation, projection and search: the memory that is kept for the agent."""
