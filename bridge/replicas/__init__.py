"""Sealed replicas of sprites' logs, and restore from them."""
