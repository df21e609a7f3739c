"""Follows Claude Code's session logs as they grow, and hands each turn that has ended to a sprite."""
