"""Search by meaning: vectors of turns, the process that computes them, and their part in a turn's score."""

__all__ = ["meaning", "vectors"]
