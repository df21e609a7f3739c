"""The three SQLite databases: their tables, and all SQL of the sprite."""
