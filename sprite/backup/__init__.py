"""Archives and replication of a workspace."""

__all__ = ["archive", "archive_reader", "replica_files", "replicator", "restore"]
