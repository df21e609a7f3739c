"""One batch of turns, one question to a small model, and what its answer says."""
