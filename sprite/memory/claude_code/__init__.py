"""Parse Claude Code's session logs into turns."""
