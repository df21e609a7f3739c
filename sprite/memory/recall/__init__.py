"""Recall: the boot prompt, search, and the views of memory for people and programs."""
