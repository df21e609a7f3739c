"""Clients on the TCP port: one connection each, message handling, and state for new clients."""
