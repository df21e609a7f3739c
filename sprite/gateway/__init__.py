"""The TCP server: connections, dispatch of messages, uploads."""
