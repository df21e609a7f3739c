"""Encrypted replicas of the sprites' logs, stored apart from the sprites' machines."""
