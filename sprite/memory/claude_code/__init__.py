"""What Claude Code wrote: its session logs, read as turns."""
