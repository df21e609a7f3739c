"""The agent's own tools: canvas, memory, actions."""

__all__ = ["blocks", "canvas", "memory"]
