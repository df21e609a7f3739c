"""Capture: write every turn to the log, from the CLI's hooks and stream."""
