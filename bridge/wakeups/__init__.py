"""Wake sprites when an action is due."""
