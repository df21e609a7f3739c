"""The TCP server: connections, dispatch of messages, uploads."""

__all__ = ["canvas", "connection", "dispatch", "ingest", "queries", "uploads"]
