"""Commands of `python -m sprite`."""

__all__: list[str] = []
