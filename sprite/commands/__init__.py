"""The commands of `python -m sprite` beside `serve`; each is a small composition root."""
