"""Clients on the TCP port: one connection each, every message handled, new ones brought up to date."""
