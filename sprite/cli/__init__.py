"""Commands of `python -m sprite`."""
