"""The bridge's database: SQLite, or a Postgres that bridges share."""
