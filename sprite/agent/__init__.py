"""The agent: run missions one at a time through the SDK and its CLI, and publish events."""

__all__ = ["background", "memory_events", "permissions", "processes", "rules", "runtime", "session"]
