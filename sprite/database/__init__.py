"""The three SQLite databases: what they hold, and the only SQL there is."""
