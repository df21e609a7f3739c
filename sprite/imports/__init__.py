"""Other programs' sessions and notes: readers, and the follower of Claude Code's logs."""
