"""Reads Claude Code's session logs as turns."""
