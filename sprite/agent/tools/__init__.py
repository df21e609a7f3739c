"""The agent's own tools: canvas, memory, actions, untrusted text."""

from typing import Any

__all__ = ["answer", "blocks", "canvas", "connections", "memory", "untrusted"]


def answer(text: str, *, is_error: bool = False) -> dict[str, Any]:
    """Return the result of a tool as the SDK wants it."""
    return {"content": [{"type": "text", "text": text}], "is_error": is_error}
