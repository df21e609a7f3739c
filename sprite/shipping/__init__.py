"""Replicate everything that is written here, so that it outlives this machine."""
