"""One SQL layer over SQLite and Postgres. `bridge.database` opens it; this package knows no table's meaning."""
