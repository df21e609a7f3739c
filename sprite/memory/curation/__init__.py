"""Curation: send a batch of turns to a small model and parse its answer."""
