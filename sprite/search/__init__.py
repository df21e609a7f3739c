"""Search in memory: query, ranking, passages, and the timeline."""
