"""Other programs' sessions and notes: readers, and the follower of Claude Code's logs."""

__all__ = ["claude_code", "claude_code_entries", "claude_code_turns", "follower", "observed_turns"]
