"""Projection: fold logged curations into memory.db and the four curated files, with evidence checks and guards."""
