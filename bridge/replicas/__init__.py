"""Sealed replicas of sprites' logs, and restore from them."""

__all__ = ["replicator", "restore", "sealed_store", "store", "upkeep"]
