"""The bridge's database: SQLite, or a Postgres that bridges share."""

__all__ = ["data_folder", "database", "open", "tables"]
