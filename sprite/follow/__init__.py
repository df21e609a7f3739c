"""Follow Claude Code's session logs as they grow, and deliver each ended turn to a sprite."""
