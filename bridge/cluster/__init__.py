"""Several bridges over one database: which of them owns a sprite."""
