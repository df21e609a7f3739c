"""The agent: run missions one at a time through the SDK and its CLI, and publish events."""
