"""Several bridges over one database: which bridge owns a sprite, and how requests are forwarded to it."""

__all__ = ["forward", "leases", "ownership"]
