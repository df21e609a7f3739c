"""The listening socket and the HTTP server."""

__all__ = ["listening", "messages"]
