"""Archives and replication of a workspace."""
