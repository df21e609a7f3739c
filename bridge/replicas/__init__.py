"""Sealed replicas of sprites' logs, and restore from them."""

__all__ = ["keys", "replicator", "restore", "sealed_store", "store", "upkeep"]
