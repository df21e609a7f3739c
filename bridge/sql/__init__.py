"""One SQL layer over SQLite and Postgres. `bridge.database` opens it; nothing here knows what a table means."""
