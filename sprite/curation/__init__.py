"""Curation: batches of turns, the prompt, the model call, its answer, and the decisions about it."""
