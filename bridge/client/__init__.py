"""The parts that every client of a sprite shares (terminal, editor, chat completions, MCP): a connection and a fold."""

__all__ = ["end", "link", "turns"]
