"""One room per sprite: events to every client, answers to the one that asked."""

__all__ = ["hub", "link", "room"]
