"""When actions are due: moments, time zones and repeats."""
