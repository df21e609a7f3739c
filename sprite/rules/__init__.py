"""Rules about tool calls: their language, a reader of shell commands, and the check of a call."""

__all__ = ["check", "condition"]
