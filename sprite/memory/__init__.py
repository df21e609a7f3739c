"""The agent's memory: capture of turns, curation, projection, search and forgetting."""
