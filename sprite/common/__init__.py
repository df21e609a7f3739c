"""Small parts that the sprite and the bridge share: SQLite files, locks, atomic files, tasks, limits, known secrets."""

__all__ = [
    "addresses",
    "due_times",
    "failures",
    "files",
    "limits",
    "locks",
    "orphans",
    "own_secrets",
    "prices",
    "recurrence",
    "settings",
    "sqlite",
    "tasks",
    "versions",
]
