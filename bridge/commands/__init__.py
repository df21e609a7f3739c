"""The bridge's commands, which `bridge.__main__` loads by name. They may import everything that they start or query."""

__all__: list[str] = []
