"""The wire protocol, version 1: messages and their encoding. The bridge imports it, too."""

__all__ = [
    "archive",
    "events",
    "files",
    "frames",
    "framing",
    "memory",
    "messages",
    "observing",
    "outbox",
    "pasted",
    "replication",
    "shapes",
    "tools",
]
