"""The agent's own tools: canvas, memory, actions."""
