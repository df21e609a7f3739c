"""Search in memory: query, ranking, passages, and the timeline."""

__all__ = ["search", "view"]
