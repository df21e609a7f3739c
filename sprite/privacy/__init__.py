"""Redact secrets, drop private passages, and cut long values before text is stored."""
