"""Removal of text from every store."""
