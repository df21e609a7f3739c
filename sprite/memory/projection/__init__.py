"""Curations to memory.db and the four files: a fold, its evidence and its guards."""
