"""Small parts that the sprite and the bridge share: SQLite files, locks, atomic files, tasks, limits, known secrets."""
