"""The agent's own tools: canvas, memory, actions, untrusted text."""

__all__ = ["blocks", "canvas", "connections", "memory", "untrusted"]
