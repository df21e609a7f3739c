"""The bridge's commands, above everything they start or ask."""
