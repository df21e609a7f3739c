"""Curation: batches of turns, the prompt, the model call, its answer, and the decisions about it."""

__all__ = ["answer", "answer_files", "model", "processor", "rebuild", "verifier"]
