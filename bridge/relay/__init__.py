"""Connections between a sprite and its clients: one link to the sprite, and an exact replay for each client."""
