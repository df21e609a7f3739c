"""Due times of actions: moments, time zones and repeats."""
