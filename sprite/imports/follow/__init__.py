"""Follow Claude Code's session logs, and deliver each turn as it ends."""

__all__ = ["delivery", "follower"]
